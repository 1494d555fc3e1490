"""Text of an exception of Java -> the one line that tells what failed. Pure.

A stack trace names the outermost exception first, and what it was caused by below its frames:

    An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.     by py4j
    : java.lang.ExceptionInInitializerError                                              names nothing
            at org.apache.spark.internal.config.package$.<init>(package.scala:1239)
    Caused by: java.net.UnknownHostException: nosuchhost: Name or service not known
            ... 24 more

A message may go on in further lines, up to the first frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEAD = re.compile(
    r'^(?:: |Caused by: |Exception in thread "[^"]*" )?'
    r"(?:[a-z_][\w$]*\.)+([A-Z][\w$]*)(?:: ?(.*))?$"
)
_FRAME = re.compile(r"^\s+at |^\s*\.\.\. \d+ (?:more|common frames)|^\s*(?:Suppressed: |$)")
_NOTHING = ("An error has occurred.",)
"""Text that the client of Kubernetes gives for every failure to connect."""
_KILLED = re.compile(r"Application has been killed\. Reason: (.*\S)")
_ANOTHER_CLASS = re.compile(r"(?:[a-z_][\w$]*\.)+[A-Z][\w$]*$")


def cause_of(text: str) -> str:
    """`Class: message` of the first exception with a message of its own, else of the innermost one.

    "" without any exception. A message that ends with a colon, or is the name of another exception,
    only announces the next one.
    """
    found = list(_exceptions(text))
    named = next((exception for exception in found if _names_something(exception[1])), None)
    kind, message = named or (found[-1] if found else ("", ""))
    return f"{kind}: {message}" if message else kind


def unregistered(master: str, application_id: str, log: str) -> str:
    """Reason of a standalone cluster that has not taken the application; "" if it has.

    Spark tries for a minute, and goes on with an id of its own (`SchedulerBackend.applicationId`) until the
    context stops by itself, which fails anywhere. `application_id`: "" where there is no context. `log`:
    what Spark has written.
    """
    if not master.startswith("spark://"):
        return ""
    killed = _KILLED.search(log)
    if killed is None and not application_id.startswith("spark-application-"):
        return ""
    said = f" ({killed[1]})" if killed else ""
    return (
        f"no master of {master} has taken the application{said}: start one, correct spark.master, or give"
        " both the same secret"
    )


def _names_something(message: str) -> bool:
    announces = message.endswith(":") or _ANOTHER_CLASS.match(message)
    return bool(message) and not announces and message not in _NOTHING


def _exceptions(text: str) -> Iterator[tuple[str, str]]:
    """Class and whole message of each exception, outermost first."""
    kind, message = "", [""]
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head or _FRAME.match(line):
            if kind:
                yield kind, _joined(message)
            kind, message = (head[1], [head[2] or ""]) if head else ("", [""])
        elif kind:
            message.append(line)
    if kind:
        yield kind, _joined(message)


def _joined(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
