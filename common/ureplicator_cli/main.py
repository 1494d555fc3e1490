"""The one command, `ureplicator`: it starts the roles, and it speaks to REST for people.

    ureplicator controller CONFIG --id c1          exit codes  0  done
    ureplicator worker CONFIG --id w1                          1  refused, failed, or not there
    ureplicator check-config CONFIG                            2  wrong usage
    ureplicator topics | blacklist | instances | status | history
    ureplicator balance | freeze | unfreeze | rebalance | export | import

A role is imported only when it is asked for: a controller's image has no Spark, a worker's no Flask.
What speaks to REST is in the modules `cli_*`, one for each subject.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import click

from ureplicator_cli.backup import export_fleet, import_fleet
from ureplicator_cli.blacklist import blacklist
from ureplicator_cli.output import F, fail
from ureplicator_cli.rebalance import balance, freeze, history, rebalance, unfreeze
from ureplicator_cli.status import instances, status
from ureplicator_cli.topics import topics
from ureplicator_common._version import __version__
from ureplicator_common.config.settings import Settings, load_settings
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.logging_setup import set_up

_ID = re.compile(r"[a-zA-Z0-9._-]{1,100}")


def main() -> None:
    cli(prog_name="ureplicator")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ureplicator")
def cli() -> None:
    """Copy topics between Kafka clusters."""


# --- Roles


def _role_options(command: F) -> F:
    """What the commands that read a configuration share."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one key, as in controller.port=9001; may be repeated.",
    )(command)
    return click.argument("config", type=click.Path(path_type=Path))(command)


def _legal_id(context: click.Context, parameter: click.Parameter, name: str) -> str:
    """An id is the name of a node in ZooKeeper and part of Kafka's transactional ids."""
    if not _ID.fullmatch(name) or name in (".", ".."):
        raise click.BadParameter("1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
    return name


def _process_options(command: F) -> F:
    command = click.option("--log-json", is_flag=True, help="Log one JSON object per line.")(
        command
    )
    return click.option(
        "--id",
        "name",
        default=socket.gethostname,
        show_default="host name",
        callback=_legal_id,
        help="Name of this process; no two that live at the same time may share it.",
    )(command)


@cli.command()
@_role_options
@_process_options
def controller(config: Path, overrides: tuple[str, ...], name: str, log_json: bool) -> None:
    """Run a controller: it serves REST, and one of all controllers leads."""
    settings = _load(config, overrides)
    set_up(as_json=log_json)
    from ureplicator_controller import daemon

    code = daemon.run(
        settings, id=name, config=config.resolve(), overrides=overrides, log_json=log_json
    )
    raise SystemExit(code)


@cli.command()
@_role_options
@_process_options
def worker(config: Path, overrides: tuple[str, ...], name: str, log_json: bool) -> None:
    """Run a worker: it copies what the leader assigns to it."""
    settings = _load(config, overrides)
    set_up(as_json=log_json)
    from ureplicator_worker import daemon

    raise SystemExit(daemon.run(settings, id=name))


@cli.command("check-config")
@_role_options
def check_config(config: Path, overrides: tuple[str, ...]) -> None:
    """Say every fault of a configuration, or that there is none."""
    settings = _load(config, overrides)
    routes = ", ".join(str(route.route) for route in settings.routes)
    click.echo(f"{config}: good (fleet {settings.fleet}, routes {routes})")


def _load(config: Path, overrides: tuple[str, ...]) -> Settings:
    try:
        return load_settings(config, environ=os.environ, overrides=overrides)
    except ConfigurationError as error:
        fail(str(error))


for command in (
    topics,
    blacklist,
    instances,
    status,
    history,
    balance,
    freeze,
    unfreeze,
    rebalance,
    export_fleet,
    import_fleet,
):
    cli.add_command(command)


if __name__ == "__main__":
    main()
