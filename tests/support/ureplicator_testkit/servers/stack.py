"""`scripts/stack`: one ZooKeeper and two Kafka clusters that run until `down`; with `up --spark` also a
standalone Spark cluster, and with `up --secure` with TLS and logins, which the written configuration then
uses.

Everything lives in `.local/stack` (another folder than `.local` by UREPLICATOR_LOCAL). Each server
carries the name of that folder in its environment, and only processes that carry it are ever ended:
a process id in a file may by now belong to another program. That also finds the remains of an
interrupted `up`.
"""

import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ureplicator_testkit.secured.brokers import SECURE
from ureplicator_testkit.secured.stack import LISTENERS, StackSecurity
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.java import NotSetUpError
from ureplicator_testkit.servers.ports import PortTakenError
from ureplicator_testkit.servers.processes import Process, remove_folder
from ureplicator_testkit.servers.reaper import kill_marked, marked_processes
from ureplicator_testkit.servers.server import Server, start_all
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer
from ureplicator_testkit.spark.standalone import SparkStandalone

ROOT = Path(__file__).resolve().parents[4]
LOCAL = Path(os.environ.get("UREPLICATOR_LOCAL") or ROOT / ".local").resolve()
FOLDER = LOCAL / "stack"
STATE = FOLDER / "state.json"
ENVIRONMENT = LOCAL / "stack.env"
CONFIG = LOCAL / "config.yaml"
MARK = "UREPLICATOR_STACK"
HEAP_MB = 512

FLEET = "local"
_CONFIG_TEXT = """\
# Written by scripts/stack for its own servers; gone after `scripts/stack down`.
fleet: {fleet}
zookeeper: {{hosts: "{zookeeper}", session_timeout_s: 10}}
clusters:
  source: {{bootstrap.servers: "{source}"}}
  target: {{bootstrap.servers: "{target}"}}
routes:
  - source: source
    target: target
    start: earliest
controller: {{host: 127.0.0.1, port: 9000, rebalance_delay_s: 120, join_delay_s: 10}}
worker: {{slots: 2, port: 0, commit_interval_s: 1{spark}}}
"""
_ON_SPARK = ', spark: {{spark.master: "{master}", spark.executor.memory: 512m}}'
SPARK_WORKERS = 2
SPARK_CORES = 2
"""Cores of each Spark worker: the two workers of `scripts/demo` have two slots each."""


def config_text(*, zookeeper: str, source: str, target: str, spark_master: str = "") -> str:
    """Configuration of a fleet on these servers. `spark_master`: "" for the worker's own machine."""
    spark = _ON_SPARK.format(master=spark_master) if spark_master else ""
    return _CONFIG_TEXT.format(
        fleet=FLEET, zookeeper=zookeeper, source=source, target=target, spark=spark
    )


@dataclass(frozen=True, slots=True)
class StackServer:
    """One server of the stack, as `status` shows it."""

    name: str
    pid: int
    address: str
    log: str


@dataclass(frozen=True, slots=True)
class StackOptions:
    """Options of `up`; a second `up` must have the same."""

    zookeeper_port: int | None
    source_port: int | None
    target_port: int | None
    brokers: int
    spark: bool | None = None
    secure: bool | None = None


@dataclass(frozen=True, slots=True)
class StackServers:
    """The servers of one stack."""

    zookeeper: ZooKeeperServer
    source: KafkaCluster
    target: KafkaCluster
    spark: SparkStandalone | None
    security: StackSecurity | None = None

    @property
    def zookeeper_hosts(self) -> str:
        """Addresses for fleets."""
        return self.zookeeper.tls_hosts if self.security else self.zookeeper.hosts

    def all(self) -> list[Server]:
        spark = [self.spark] if self.spark else []
        return [self.zookeeper, self.source, self.target, *spark]

    def environment(self) -> dict[str, str]:
        """Contents of the environment file."""
        spark = {"SPARK_MASTER": self.spark.url} if self.spark else {}
        return {
            "ZOOKEEPER": self.zookeeper_hosts,
            "SOURCE_BOOTSTRAP": self.source.bootstrap,
            "TARGET_BOOTSTRAP": self.target.bootstrap,
            **spark,
            **(self._secured_environment(self.security) if self.security else {}),
        }

    def _secured_environment(self, security: StackSecurity) -> dict[str, str]:
        return {
            "SOURCE_SECURE": f"127.0.0.1:{self.source.listener_port(SECURE)}",
            "TARGET_SECURE": f"127.0.0.1:{self.target.listener_port(SECURE)}",
            **security.environment(),
        }

    def configuration(self) -> str:
        text = config_text(
            zookeeper=self.zookeeper.hosts,
            source=self.source.bootstrap,
            target=self.target.bootstrap,
            spark_master=self.spark.url if self.spark else "",
        )
        if self.security is None:
            return text
        return self.security.configuration(
            text,
            zookeeper=self.zookeeper_hosts,
            clusters={"source": self.source, "target": self.target},
        )

    def members(self) -> list[StackServer]:
        members = [_member(self.zookeeper.process, self.zookeeper_hosts)]
        for cluster in (self.source, self.target):
            members += [
                _member(process, f"127.0.0.1:{port}" if port else "")
                for process, port in zip_longest(cluster.processes(), cluster.ports)
            ]
        if self.spark:
            members.append(_member(self.spark.master, self.spark.url))
            members += [_member(process, "") for process in self.spark.processes()[1:]]
        return members


@click.group()
def main() -> None:
    """A ZooKeeper and two Kafka clusters on this machine."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@main.command()
@click.option("--zookeeper-port", type=click.IntRange(1, 65535), help="default: a free one")
@click.option("--source-port", type=click.IntRange(1, 65535), help="of the first source broker")
@click.option("--target-port", type=click.IntRange(1, 65535), help="of the first target broker")
@click.option("--brokers", type=click.IntRange(1, 9), default=1, show_default=True)
@click.option("--spark", is_flag=True, default=None, help="also a Spark master and two workers")
@click.option("--secure", is_flag=True, default=None, help="TLS and logins; with one broker each")
def up(
    zookeeper_port: int | None,
    source_port: int | None,
    target_port: int | None,
    brokers: int,
    spark: bool | None,
    secure: bool | None,
) -> None:
    """Start the servers, unless they run; returns when every server responds.

    What is left of servers that have all ended is removed first.
    """
    if secure and brokers > 1:
        raise click.UsageError("--secure is for one broker each")
    wanted = StackOptions(zookeeper_port, source_port, target_port, brokers, spark, secure)
    with _alone():
        if _all_run():
            _refuse_other(wanted)
            click.echo("stack: already up", err=True)
        else:
            _refuse_some()
            _remove()
            _start(wanted)
    click.echo(ENVIRONMENT.read_text(), nl=False)


@main.command()
def down() -> None:
    """Stop what `up` started and remove its data."""
    with _alone():
        count = len(_ours())
        _remove()
    click.echo(f"stack: down ({count} processes ended)")


@main.command()
def status() -> None:
    """Show every server; the exit code is 0 only when all run."""
    table = Table("server", "state", "pid", "address", "log", caption=f"logs are in {FOLDER}")
    ours = _ours()
    for member in _members():
        state = "[green]runs" if member.pid in ours else "[red]ended"
        table.add_row(member.name, state, str(member.pid), member.address, member.log)
    if table.row_count:
        Console().print(table)
    else:
        click.echo("stack: not up")
    sys.exit(0 if _all_run() else 1)


def _start(wanted: StackOptions) -> None:
    os.environ[MARK] = str(FOLDER)
    try:
        servers = _servers(wanted)
        start_all(*servers.all())
        if servers.security:
            servers.security.let_in(servers.source, servers.target)
        _write_down(wanted, servers)
    except (NotSetUpError, PortTakenError, AssertionError) as error:
        _remove()
        raise click.ClickException(f"stack: {error}") from None
    except BaseException:
        _remove()
        raise


def _servers(wanted: StackOptions) -> StackServers:
    security = StackSecurity(FOLDER / "security") if wanted.secure else None
    return StackServers(
        ZooKeeperServer(
            port=wanted.zookeeper_port,
            folder=FOLDER / "zookeeper",
            heap_mb=HEAP_MB,
            detached=True,
            tls=security.zookeeper() if security else None,
        ),
        _kafka("source", wanted.source_port, wanted.brokers, security),
        _kafka("target", wanted.target_port, wanted.brokers, security),
        _spark() if wanted.spark else None,
        security,
    )


def _spark() -> SparkStandalone:
    return SparkStandalone(
        workers=SPARK_WORKERS, cores=SPARK_CORES, folder=FOLDER / "spark", detached=True
    )


def _kafka(
    name: str, port: int | None, brokers: int, security: StackSecurity | None
) -> KafkaCluster:
    return KafkaCluster(
        brokers,
        name=name,
        properties=security.broker_properties() if security else None,
        listeners=LISTENERS if security else (),
        ports=[port + index for index in range(brokers)] if port else None,
        folder=FOLDER / name,
        heap_mb=HEAP_MB,
        detached=True,
    )


def _write_down(wanted: StackOptions, servers: StackServers) -> None:
    """The environment file is written last: it exists only when everything else does."""
    members = [asdict(member) for member in servers.members()]
    _write(STATE, json.dumps({"wanted": asdict(wanted), "members": members}, indent=2) + "\n")
    _write(CONFIG, servers.configuration())
    lines = (f"{name}={value}\n" for name, value in servers.environment().items())
    _write(ENVIRONMENT, "".join(lines))


def _member(process: Process, address: str) -> StackServer:
    return StackServer(process.name, process.pid, address, str(process.log.relative_to(FOLDER)))


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def _remove() -> None:
    ENVIRONMENT.unlink(missing_ok=True)
    CONFIG.unlink(missing_ok=True)
    left = kill_marked(MARK, str(FOLDER))
    if left:
        raise click.ClickException(f"stack: cannot end {left}")
    remove_folder(FOLDER)


def _refuse_other(wanted: StackOptions) -> None:
    running = StackOptions(**json.loads(STATE.read_text())["wanted"])
    wanted_values = asdict(wanted)
    if any(value not in (None, asdict(running)[key]) for key, value in wanted_values.items()):
        raise click.ClickException(
            "stack: already up with other options: run scripts/stack down first"
        )


def _refuse_some() -> None:
    """Servers that run keep their data: they are not ended for one that has."""
    ours, members = _ours(), _members()
    ended = [member.name for member in members if member.pid not in ours]
    if 0 < len(ended) < len(members):
        raise click.ClickException(
            f"stack: {', '.join(ended)} has ended, and the others run: scripts/stack status shows the logs;"
            " scripts/stack down ends all, and removes their data"
        )


def _ours() -> Sequence[int]:
    return marked_processes(MARK, str(FOLDER))


def _members() -> list[StackServer]:
    if not STATE.exists():
        return []
    return [StackServer(**member) for member in json.loads(STATE.read_text())["members"]]


def _all_run() -> bool:
    ours, members = _ours(), _members()
    return ENVIRONMENT.exists() and bool(members) and all(m.pid in ours for m in members)


@contextmanager
def _alone() -> Iterator[None]:
    """Lock: concurrent calls run one after the other."""
    LOCAL.mkdir(parents=True, exist_ok=True)
    with (LOCAL / "stack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main()
