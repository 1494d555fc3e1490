"""Exceptions of users' code: one line that has the place in that code, and the stack for the log."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator
from pathlib import PurePath

logger = logging.getLogger(__name__)

MAX_MESSAGE = 400
MAX_STACK = 4_000
"""Characters of a stack in the log; the innermost calls are kept."""
_CALLERS = ("ureplicator_worker.copier", "ureplicator_worker.sql", "importlib", "pyspark", "py4j")
_OF_OTHERS = re.compile(r"/pyspark(\.zip)?/|/lib/python[0-9.]+/(?!site-packages/)|^<")
"""Files of Spark and of Python itself."""
_STACK = re.compile(r"Traceback \(most recent call last\):\n((?:[ \t].*\n)*)(\S.*)")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def reason_of(error: BaseException) -> str:
    """Kind, message and place in the user's code on one line."""
    text = " ".join(str(error).split())[:MAX_MESSAGE]
    kind = type(error).__name__
    place = place_of(error)
    return (f"{kind}: {text}" if text else kind) + (f" in {place}" if place else "")


def place_of(error: BaseException) -> str:
    """`file:line` of the innermost call in the user's package; "" if none of its calls failed.

    The user's package is that of the first call which is not ours: the libraries that it calls are not it.
    """
    package, place = "", ""
    for name, file, line in _calls(error):
        top = name.partition(".")[0]
        if not package and not _is_caller(name):
            package = top
        if package and top == package and not _is_caller(name):
            place = f"{PurePath(file).name}:{line}"
    return place


def _calls(error: BaseException) -> Iterator[tuple[str, str, int]]:
    """Module, file and line of each call, outermost first."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_globals.get("__name__") or "?"
        yield name, frame.f_code.co_filename, line


def _is_caller(module: str) -> bool:
    return any(module == caller or module.startswith(f"{caller}.") for caller in _CALLERS)


def python_reason(text: str) -> str:
    """The reason for a function in a Python process of Spark, from Spark's message; "" if it has none."""
    found = _STACK.findall(text)
    if not found:
        return ""
    stack, last = found[-1]
    place = _place_in(stack)
    return f"{last} in {place}" if place else last


def _place_in(stack: str) -> str:
    """The place as of `place_of`; the user's package is the folder of the first call's file."""
    frames = [frame for frame in _FRAME.findall(stack) if not _OF_OTHERS.search(frame[0])]
    folder = PurePath(frames[0][0]).parent if frames else None
    places = [(file, line) for file, line in frames if folder in PurePath(file).parents]
    return f"{PurePath(places[-1][0]).name}:{places[-1][1]}" if places else ""


def log_python_stack(where: str, text: str) -> None:
    """The stack of such a function, if Spark's message has one."""
    found = _STACK.findall(text)
    if found:
        stack, _ = found[-1]
        logger.error("%s: %s\n%s", where, python_reason(text), stack[-MAX_STACK:].rstrip())


def log_stack(where: str, error: BaseException) -> None:
    """The user's stack, without values: no record gets into the log, unless the message has it."""
    try:
        stack = "".join(traceback.format_tb(error.__traceback__))[-MAX_STACK:]
    except MemoryError:
        stack = "(no memory for the stack)\n"
    logger.error("%s: %s\n%s", where, reason_of(error), stack.rstrip())
