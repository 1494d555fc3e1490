"""`ureplicator zookeeper secure`: access lists on the tree of a fleet that has none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click

from ureplicator_cli.options import config_options
from ureplicator_cli.output import fail
from ureplicator_common.config.settings import Settings, load_settings
from ureplicator_common.coordination import Coordination
from ureplicator_common.errors import OperatingError
from ureplicator_common.znodes.paths import Paths

CONNECT_S = 10.0


@click.group()
def zookeeper() -> None:
    """Access to the fleet's tree in ZooKeeper."""


@zookeeper.command()
@config_options
def secure(config: Path, overrides: tuple[str, ...]) -> None:
    """Give all nodes of the fleet to the user of zookeeper.digest_file.

    Run it once all processes of the fleet have the user: others lose their access at once. It may be
    repeated.
    """
    try:
        settings = load_settings(config, environ=os.environ, overrides=overrides)
        count = _secured(settings)
    except OperatingError as error:
        fail(str(error))
    click.echo(f"{count} nodes belong to the user of zookeeper.digest_file")


def _secured(settings: Settings) -> int:
    if not settings.zookeeper.digest():
        fail("zookeeper.digest_file is not set: there is no user to give the nodes to")
    from ureplicator_common.coordination.zookeeper import open_coordination

    with closing(open_coordination(settings.zookeeper)) as coordination:
        coordination.connect(CONNECT_S)
        root = Paths(settings.fleet).root
        return sum(coordination.protect(path) for path in _tree(coordination, root))


def _tree(coordination: Coordination, root: str) -> Iterator[str]:
    """A node before its children, so that what is created meanwhile is created by one who may."""
    yield root
    for name in coordination.children(root):
        yield from _tree(coordination, f"{root}/{name}")
