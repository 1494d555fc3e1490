"""An audit that a command runs: the configuration, how the topic is copied, the run with its bar, its end.

It reads both clusters itself, so it needs the configuration, ZooKeeper and Java, and no controller.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ureplicator_cli.output import warn
from ureplicator_common.clock import SystemClock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings, load_settings
from ureplicator_common.errors import ConfigurationError, OperatingError
from ureplicator_common.model import Route

if TYPE_CHECKING:
    from ureplicator_worker.audit.result import AuditRequest, AuditResult
    from ureplicator_worker.auditor.command import Command, Done
    from ureplicator_worker.auditor.recording import CopiedAs

EQUAL, DIFFERENT, COULD_NOT = 0, 1, 2


def read_settings(config: Path, overrides: tuple[str, ...]) -> Settings:
    try:
        return load_settings(config, environ=os.environ, overrides=overrides)
    except ConfigurationError as error:
        refuse(str(error))


def find_route(settings: Settings, name: str) -> RouteConfig:
    names = [str(config.route) for config in settings.routes]
    if not name and len(names) == 1:
        return settings.routes[0]
    try:
        return settings.routes[names.index(str(Route.parse(name)))]
    except ValueError:
        have = f"the configuration has {', '.join(names)}"
        refuse(
            f"--route: there is no route {name}: {have}" if name else f"--route is needed: {have}"
        )


def read_copied_as(settings: Settings, route: RouteConfig, topic: str) -> CopiedAs:
    """Operators may have changed the settings of the route since the file was written."""
    from ureplicator_worker.auditor.recording import copied_as

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # the message below is enough
    try:
        return copied_as(settings, route, topic)
    except OperatingError as error:
        refuse(f"the settings of route {route.route} cannot be read in ZooKeeper: {error}")


def run(settings: Settings, command: Command, *, quiet: bool, recorded: bool = True) -> Done:
    """`quiet`: without a bar. `recorded`: keep in ZooKeeper what was verified."""
    from ureplicator_worker.auditor.command import execute

    began_ms = SystemClock().wall_ms()
    try:
        with _bar(command.wanted.topic, quiet) as advance:
            done = execute(settings, command, on_progress=advance)
        if recorded:
            _record(settings, _of(done.result, command.wanted.numbers), command.folder, began_ms)
        return done
    except OperatingError as error:
        refuse(str(error))
    except KeyboardInterrupt:
        more = "; go on with --resume" if command.folder is not None else ""
        refuse(f"interrupted{more}")


def _of(result: AuditResult, numbers: Collection[int]) -> AuditResult:
    """The partitions that were wanted now: a result that was resumed holds others, of an earlier time."""
    if not numbers:
        return result
    return replace(
        result,
        partitions=tuple(row for row in result.partitions if row.partition in numbers),
        findings=tuple(row for row in result.findings if row.partition in numbers),
    )


def _record(settings: Settings, result: AuditResult, folder: Path | None, began_ms: int) -> None:
    """Keep what was verified in ZooKeeper, for `ureplicator audits`; a warning if that cannot be."""
    from ureplicator_worker.auditor.recording import record

    report = str(folder.resolve()) if folder is not None else ""
    try:
        record(settings, result, began_ms=began_ms, report=report)
    except OperatingError as error:
        warn(f"the result is not recorded in ZooKeeper: {error}")


@contextmanager
def _bar(topic: str, quiet: bool) -> Iterator[Any]:
    """A progress bar on a terminal, nothing elsewhere."""
    from ureplicator_worker.audit.progress import progress as offsets_done

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("offsets, {task.fields[found]:,} findings"),
        TimeRemainingColumn(),
    )
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, disable=hidden) as progress:
        task = progress.add_task(topic, total=None, found=0)

        def advance(request: AuditRequest, result: AuditResult, passed: int) -> None:
            done, total = offsets_done(request, result, passed)
            found = result.total("differences") + result.total("repeated")
            progress.update(task, total=total, completed=done, found=found)

        yield advance


def end_with(result: AuditResult) -> NoReturn:
    """End the command: with what its exit code says, and the reason if nothing is proved."""
    if result.reason:
        warn(f"{result.topic}: {result.state}: {result.reason}")
    raise SystemExit(_exit_code(result))


def _exit_code(result: AuditResult) -> int:
    from ureplicator_worker.audit.result import AuditState

    codes = {AuditState.EQUAL: EQUAL, AuditState.DIFFERENT: DIFFERENT}
    return codes.get(result.state, COULD_NOT)


def refuse(message: str) -> NoReturn:
    warn(message)
    raise SystemExit(COULD_NOT)
