"""The commands that start a role or an executor, check a configuration, and pack what executors need.

A role is imported when it starts: a controller's image carries no Spark, a worker's no Flask.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import click

from ureplicator_cli.options import F, config_options
from ureplicator_cli.output import fail
from ureplicator_common.config.settings import Settings, load_settings
from ureplicator_common.coordination.tls import check_tls
from ureplicator_common.errors import ConfigurationError, PermanentError
from ureplicator_common.logging_setup import set_up
from ureplicator_common.model import ID_RULE, is_legal_id


def _legal_id(context: click.Context, parameter: click.Parameter, id: str) -> str:
    if not is_legal_id(id):
        raise click.BadParameter(ID_RULE)
    return id


def _process_options(command: F) -> F:
    command = click.option("--log-json", is_flag=True, help="Log one JSON object per line.")(
        command
    )
    return click.option(
        "--id",
        "id",
        default=socket.gethostname,
        show_default="host name",
        callback=_legal_id,
        help="Name of this process, unique among the live processes of its role.",
    )(command)


@click.command()
@config_options
@_process_options
def controller(config: Path, overrides: tuple[str, ...], id: str, log_json: bool) -> None:
    """Run a controller.

    Every controller serves REST; one of them is elected leader. CONFIG is a YAML file, overridden by
    environment variables (UREPLICATOR_CONTROLLER__PORT=9001) and by --set.
    """
    settings = _load(config, overrides)
    set_up(as_json=log_json)
    from ureplicator_controller import daemon

    code = daemon.run(
        settings, id=id, config=config.resolve(), overrides=overrides, log_json=log_json
    )
    raise SystemExit(code)


@click.command()
@config_options
@_process_options
@click.option(
    "--on-stop",
    type=click.Choice(["stay", "leave"]),
    help="At SIGTERM: partitions stay for the rebalance delay, or other workers take them first."
    "  [default: worker.on_stop]",
)
def worker(
    config: Path, overrides: tuple[str, ...], id: str, log_json: bool, on_stop: str | None
) -> None:
    """Run a worker.

    It copies the partitions that the leader assigns to it. CONFIG is the same file that the
    controllers read.
    """
    if on_stop is not None:
        overrides = (*overrides, f"worker.on_stop={on_stop}")
    settings = _load(config, overrides)
    set_up(as_json=log_json)
    from ureplicator_worker import daemon

    raise SystemExit(daemon.run(settings, id=id))


@click.command()
@config_options
@_process_options
def auditor(config: Path, overrides: tuple[str, ...], id: str, log_json: bool) -> None:
    """Run an auditor.

    It compares source and target for every ureplicator audits request, and behind the copy of routes
    with audit.continuous. CONFIG is the same file that the controllers read.
    """
    settings = _load(config, overrides)
    set_up(as_json=log_json)
    from ureplicator_worker.auditor import daemon

    raise SystemExit(daemon.run(settings, id=id))


@click.command()
def executor() -> None:
    """Run an executor of Spark in a pod.

    Spark itself starts it, from the worker's image, for a worker whose spark.master is
    k8s://...: all that it needs is in the pod's variables.
    """
    from ureplicator_worker.engines import spark_executor as pod

    try:
        pod.run(os.environ)
    except PermanentError as error:
        fail(str(error))


@click.command("check-config")
@config_options
def check_config(config: Path, overrides: tuple[str, ...]) -> None:
    """Check a configuration file and report every fault.

    Reads CONFIG with the environment and --set, as the roles do. Exit code 1 if there is a fault.
    """
    settings = _load(config, overrides, to_run=False)
    routes = ", ".join(str(route.route) for route in settings.routes)
    click.echo(f"{config}: valid (fleet {settings.fleet}, routes {routes})")


@click.command("executor-archive")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--with",
    "extra",
    multiple=True,
    metavar="DISTRIBUTION",
    help="Add an installed distribution and what it requires, as one with handlers. Repeatable.",
)
def executor_archive(file: Path, extra: tuple[str, ...]) -> None:
    """Pack what Spark's executors need of this environment.

    FILE is a zip file. Name it in the worker's configuration: `spark.archives: FILE#packages` and
    `spark.executorEnv.PYTHONPATH: packages`. Executors need a Python of the same minor version on a
    system of the same kind.
    """
    from ureplicator_worker.executor_archive import pack

    try:
        content = pack(file, extra)
    except PermanentError as error:
        fail(str(error))
    click.echo(f"{file}: {content}")


def _load(config: Path, overrides: tuple[str, ...], *, to_run: bool = True) -> Settings:
    """`to_run`: files with secrets must be there, too."""
    try:
        settings = load_settings(config, environ=os.environ, overrides=overrides)
        if to_run:
            settings.zookeeper.digest()
            check_tls(settings.zookeeper.tls)
        return settings
    except ConfigurationError as error:
        fail(str(error))
