"""`scripts/demo`: start everything, copy a topic, verify the copy, and clean up.

    scripts/demo           about a minute; the exit code is 0 only when both sides are equal
    scripts/demo --spark   the same with the copiers on a standalone Spark cluster
    scripts/demo --secure  the same with TLS and logins: Kafka, ZooKeeper, REST
    scripts/demo --scale   the same, and a worker joins and leaves meanwhile
    scripts/demo --cutover producers and consumers move to the other cluster and back meanwhile
    scripts/demo --keep    the same, and everything keeps running for inspection
    scripts/demo --down    stop what --keep left running

The servers are those of `scripts/stack`, started here if they do not run yet, and stopped only if they
were started here. The fleet is then the one that their `.local/config.yaml` names, so that one more worker
joins it; with servers that ran before it is another one, as that fleet may run. Every process carries the
name of the folder in its environment, by which all of them are found, however the process that started
them ended.
"""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
from confluent_kafka import KafkaException
from requests import RequestException
from rich.console import Console
from rich.table import Table

from ureplicator_cli.rest_client import RestFailure
from ureplicator_demo.compare import audited
from ureplicator_demo.cutting_over import configured, there_and_back
from ureplicator_demo.fleet import Fleet, Mark, login_of
from ureplicator_demo.progress import CopyProgress, Ends, Rate, shown
from ureplicator_demo.scaling import grow_and_shrink
from ureplicator_demo.waiting import await_none_missing
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers import stack
from ureplicator_testkit.servers.processes import Process, remove_folder
from ureplicator_worker.audit.result import AuditState

FOLDER = stack.LOCAL / "demo"
STATE = FOLDER / "state.json"
MARK = Mark("UREPLICATOR_DEMO", str(FOLDER))
STACK = stack.ROOT / "scripts" / "stack"
PARTITIONS = 8
WORKERS = 2
KEPT_FOR_EVER = {"retention.ms": "-1"}
"""The records are dated in the past; brokers would begin to remove them during the demo."""
EXTRAS = {
    "--spark": ", a Spark master with two Spark workers",
    "--secure": ", all with TLS and logins",
}
BEFORE = 0.6
"""Share of the records produced before copying begins; the rest is produced meanwhile."""
PRODUCE_DEADLINE_S = 300.0
PATIENCE = "10"
"""Factor of the times for acknowledgements in the producer, which PRODUCE_DEADLINE_S bounds as a whole."""
SCALE_PAUSE_S = 2.0
"""Time after each chunk of the rest, with --scale: records arrive all the time."""
COPY_DEADLINE_S = 600.0
POLL_INTERVAL_S = 0.1

Show = Callable[[Fleet, Mapping[str, str], str], str]
"""What is shown with a fleet, its servers and the name of a topic; what was found, in words."""

console = Console(highlight=False)


class DemoFailed(Exception):
    """The demo failed; the text is the reason."""


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.option("--keep", is_flag=True, help="Keep everything running for inspection.")
@click.option("--down", is_flag=True, help="End what --keep left running.")
@click.option("--spark", is_flag=True, help="Run the copiers on a standalone Spark cluster.")
@click.option("--secure", is_flag=True, help="TLS and logins: Kafka, ZooKeeper, REST.")
@click.option("--scale", is_flag=True, help="A worker joins and leaves meanwhile.")
@click.option("--cutover", is_flag=True, help="Clients move to the other cluster and back.")
@click.option("--records", type=click.IntRange(1_000), default=500_000, show_default=True)
def main(
    keep: bool, down: bool, spark: bool, secure: bool, scale: bool, cutover: bool, records: int
) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with _alone():
            if down:
                _end_kept()
            else:
                if cutover and (secure or scale):
                    raise DemoFailed("--cutover goes with neither --secure nor --scale")
                show = _cut_over if cutover else partial(_show, records=records, scale=scale)
                _run(keep, _extras(spark=spark, secure=secure), show, both_ways=cutover)
    except (DemoFailed, AssertionError, RestFailure, RequestException, KafkaException) as error:
        console.print(f"demo: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("demo: interrupted")
        sys.exit(130)


# --- The run


def _extras(**wanted: bool) -> Sequence[str]:
    """Options of the stack."""
    return [f"--{name}" for name, on in wanted.items() if on]


def _run(keep: bool, extras: Sequence[str], show: Show, *, both_ways: bool) -> None:
    if STATE.exists() and MARK.processes():
        raise DemoFailed("a demo is still running: end it with scripts/demo --down")
    MARK.end([])
    remove_folder(FOLDER)
    FOLDER.mkdir(parents=True)
    began = time.monotonic()
    ours = not _stack_runs()
    good = leave = False
    fleet: Fleet | None = None
    try:
        more = "".join(EXTRAS[extra] for extra in extras)
        console.print(f"[bold]1[/] servers: one ZooKeeper, two Kafka clusters{more}")
        try:
            servers = _servers(extras)
        except DemoFailed:
            ours = False  # `up` has removed what it started; other servers are not the demo's
            raise
        topic = "demo" if ours else f"demo-{int(time.time())}"
        config = configured(stack.CONFIG, FOLDER) if both_ways else stack.CONFIG
        fleet = _fleet(keep, stack.FLEET if ours else topic, servers, config)
        try:
            found = show(fleet, servers, topic)
            good = True
            console.print(f"[green]{found} ({_since(began)})", soft_wrap=True)
        finally:
            leave = keep and not isinstance(sys.exception(), KeyboardInterrupt | SystemExit)
            if leave:
                _leave(fleet, ours)
    finally:
        if not leave:
            _clean_up(fleet, ours, good)


def _cut_over(fleet: Fleet, servers: Mapping[str, str], topic: str) -> str:
    console.print(f"[bold]2[/] one controller, {WORKERS} workers, routes in both directions")
    fleet.start()
    fleet.wait_ready(console)
    console.print(f"  the page of the move  {fleet.url}/", soft_wrap=True)
    console.print("[bold]3[/] a cutover, there and back")
    return there_and_back(fleet, servers, FOLDER, console)


def _show(
    fleet: Fleet, servers: Mapping[str, str], topic: str, records: int, *, scale: bool
) -> str:
    source, target = servers["SOURCE_BOOTSTRAP"], servers["TARGET_BOOTSTRAP"]
    console.print(f"[bold]2[/] one controller, {WORKERS} workers; meanwhile a topic is filled")
    fleet.start()
    create_topic(source, topic, partitions=PARTITIONS, config=KEPT_FOR_EVER)
    before = int(records * BEFORE)
    _await_produced(_produce(source, topic, 0, before), before)
    fleet.wait_ready(console)
    _print_addresses(fleet, servers, topic)
    if not fleet.refuses_strangers():
        raise DemoFailed("REST responds to who has no token")
    console.print(
        f"[bold]3[/] copying {topic}: {before:,} records are there,"
        f" {records - before:,} more are produced meanwhile"
    )
    fleet.rest("POST", "/topics", {"topic": topic})
    pause_s = SCALE_PAUSE_S if scale else 0.0
    producer = _produce(source, topic, before, records - before, pause_s=pause_s)
    if scale:
        grow_and_shrink(fleet, topic, PARTITIONS, console)
    _watch(fleet, source, target, topic, records)
    _await_produced(producer, records - before)
    console.print("[bold]4[/] audit: key, value, headers, timestamp, partition and order")
    found = audited(stack.CONFIG, topic, fleet=fleet.name, folder=FOLDER, console=console)
    if found.state is not AuditState.EQUAL or found.total("repeated"):
        raise DemoFailed(f"the two sides differ\n{json.dumps(found.to_json(), indent=1)}")
    count = found.total("compared")
    if count != records:
        raise DemoFailed(f"{count:,} records were compared, not {records:,}")
    console.print(f"  {count:,} records are equal")
    return "every record is there, once, in order"


def _watch(fleet: Fleet, source: str, target: str, topic: str, records: int) -> None:
    """Show progress until the target has everything."""
    here, there = Ends(source, topic, PARTITIONS), Ends(target, topic, PARTITIONS)
    rate, end = Rate(), time.monotonic() + COPY_DEADLINE_S
    with shown(console, records) as show:
        while True:
            copied = there.total()
            show(CopyProgress(copied, max(here.total() - copied, 0), rate.at(copied)))
            if copied >= records:
                return
            if time.monotonic() > end:
                raise DemoFailed(
                    f"only {copied:,} of {records:,} records were copied within"
                    f" {COPY_DEADLINE_S:.0f} s\n{fleet.wrong()}"
                )
            time.sleep(POLL_INTERVAL_S)


def _produce(
    bootstrap: str, topic: str, first: int, count: int, *, pause_s: float = 0.0
) -> Process:
    """Fill the topic from a process of its own: producing and watching would slow each other down."""
    arguments = [bootstrap, topic, str(PARTITIONS), str(first), str(count), str(pause_s)]
    return Process(
        "producer",
        [sys.executable, "-m", "ureplicator_demo.records", *arguments],
        log=FOLDER / "producer.log",
        env={MARK.name: MARK.value, "UREPLICATOR_DEADLINE_FACTOR": PATIENCE},
    )


def _await_produced(producer: Process, records: int) -> None:
    missing = f"{records:,} records to be produced"
    await_none_missing(
        lambda: missing if producer.running else "", PRODUCE_DEADLINE_S, console=console
    )
    if producer.returncode:
        raise DemoFailed(f"the producer failed:\n{producer.log_tail()}")


def _fleet(keep: bool, name: str, servers: Mapping[str, str], config: Path) -> Fleet:
    return Fleet(
        config,
        FOLDER,
        name=name,
        workers=WORKERS,
        mark=MARK,
        detached=keep,
        login=login_of(servers),
    )


# --- Start and stop


def _stack_runs() -> bool:
    status = subprocess.run([STACK, "status"], stdout=subprocess.DEVNULL, check=False)  # noqa: S603
    return status.returncode == 0


def _servers(extras: Sequence[str]) -> Mapping[str, str]:
    """Start the stack, or find it running; returns its addresses."""
    command = [str(STACK), "up", *extras]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise DemoFailed("the servers did not start")
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def _clean_up(fleet: Fleet | None, ours: bool, good: bool) -> None:
    console.print("cleaning up", style="dim")
    if fleet is not None:
        fleet.stop()
    if ours:
        subprocess.run([STACK, "down"], stdout=subprocess.DEVNULL, check=False)  # noqa: S603
    if good:
        remove_folder(FOLDER)
    elif any(FOLDER.glob("*.log")):
        console.print(f"logs: {FOLDER}", soft_wrap=True)


def _leave(fleet: Fleet, ours: bool) -> None:
    left = {"roots": [process.pid for process in fleet.processes], "stack": ours}
    STATE.write_text(json.dumps(left))
    command = Path(sys.executable).with_name("ureplicator").relative_to(stack.ROOT)
    console.print(f"dashboard  {fleet.url}/", soft_wrap=True)
    console.print(f"left running; try  {command} status{fleet.options()}", soft_wrap=True)
    config = stack.CONFIG.relative_to(stack.ROOT)
    other = "" if fleet.name == stack.FLEET else f" --set fleet={fleet.name}"
    more = f"{command} worker {config}{other} --id w{WORKERS + 1}"
    console.print(f"one more worker  {more}", soft_wrap=True)
    console.print("end all of it with  scripts/demo --down")


def _end_kept() -> None:
    left = json.loads(STATE.read_text()) if STATE.exists() else {}
    count = MARK.end(left.get("roots", []))
    if left.get("stack"):
        subprocess.run([STACK, "down"], check=False)  # noqa: S603
    remove_folder(FOLDER)
    console.print(f"demo: down ({count} processes ended)")


@contextmanager
def _alone() -> Iterator[None]:
    stack.LOCAL.mkdir(exist_ok=True)
    with (stack.LOCAL / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFailed("another scripts/demo is at work here") from None
        yield


# --- Printing


def _print_addresses(fleet: Fleet, servers: Mapping[str, str], topic: str) -> None:
    table = Table.grid(padding=(0, 2))
    rows = [("dashboard", f"{fleet.url}/"), ("REST", f"{fleet.url}/topics/{topic}")]
    for worker in fleet.pages():
        rows.append((f"worker {worker.name}", worker.status))
        rows.append(("  its Spark UI", worker.spark))
    for name in ("source", "target"):
        plain = servers[f"{name.upper()}_BOOTSTRAP"]
        rows.append((f"{name} Kafka", servers.get(f"{name.upper()}_SECURE", plain)))
    rows.append(("ZooKeeper", servers["ZOOKEEPER"]))
    if "SPARK_MASTER" in servers:
        rows.append(("Spark master", servers["SPARK_MASTER"]))
    for what, where in rows:
        table.add_row(f"  {what}", where)
    console.print(table)


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"


if __name__ == "__main__":
    main()
