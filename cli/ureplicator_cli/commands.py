"""The command tree of `ureplicator`.

    exit code 0  done
    exit code 1  refused, failed, or no controller reached; one line on stderr per reason
    exit code 2  wrong usage

`roles` starts controllers, workers and auditors, and executors in pods of Spark. `doctor` and `audit` read
the Kafka clusters themselves; `audit` exits with 1 if records differ. `zookeeper` writes to ZooKeeper.
`completion` asks nobody. All other commands speak to REST alone: any controller serves, and neither
ZooKeeper nor Kafka has to be reachable from the operator's machine.
"""

from __future__ import annotations

import click

from ureplicator_cli.audit import audit
from ureplicator_cli.audits import audits
from ureplicator_cli.blacklist import blacklist
from ureplicator_cli.consumers.failover import failover
from ureplicator_cli.consumers.groups import groups
from ureplicator_cli.consumers.offsets import offsets
from ureplicator_cli.cutover.command import cutover
from ureplicator_cli.diagnosis.command import diagnose
from ureplicator_cli.doctor.command import doctor
from ureplicator_cli.export import export_fleet, import_fleet
from ureplicator_cli.fleet_file.apply import apply
from ureplicator_cli.fleets.claims import claims
from ureplicator_cli.fleets.command import fleets
from ureplicator_cli.history import history
from ureplicator_cli.options import SectionedGroup
from ureplicator_cli.positions import positions
from ureplicator_cli.rebalance import balance, freeze, rebalance, unfreeze
from ureplicator_cli.roles import (
    auditor,
    check_config,
    controller,
    executor,
    executor_archive,
    worker,
)
from ureplicator_cli.routes import limits, routes
from ureplicator_cli.status import status
from ureplicator_cli.tasks import tasks
from ureplicator_cli.terminal.completion import completion
from ureplicator_cli.terminal.top import top
from ureplicator_cli.topics import topics
from ureplicator_cli.workers import instances
from ureplicator_cli.zookeeper import zookeeper
from ureplicator_common._version import __version__


@click.group(cls=SectionedGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ureplicator")
def cli() -> None:
    """Replicate topics between Kafka clusters.

    Run `ureplicator COMMAND --help` for the options of a command. Commands that operate a fleet
    connect to the controller at --url, or at UREPLICATOR_URL.
    """


cli.add_section(
    "Run a role", controller, worker, auditor, check_config, doctor, executor_archive, executor
)
cli.add_section("Topics", topics, positions, blacklist, routes, limits)
cli.add_section("Consumers", groups, offsets, failover, cutover)
cli.add_section("Fleet", status, top, instances, tasks, history, fleets, claims, diagnose)
cli.add_section("Audit", audit, audits)
cli.add_section("Placement", rebalance, balance, freeze, unfreeze)
cli.add_section("Files", apply, export_fleet, import_fleet)
cli.add_section("Access", zookeeper)
cli.add_section("Shell", completion)
