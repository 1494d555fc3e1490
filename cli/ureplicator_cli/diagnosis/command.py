"""`ureplicator diagnose`: options, and the archive."""

from __future__ import annotations

import io
import itertools
import os
import platform
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import click
import yaml

from ureplicator_cli.diagnosis.secrets import Redactor, masked_tree, secrets_in
from ureplicator_cli.diagnosis.states import PageReader, rest_states, worker_pages
from ureplicator_cli.options import url_option
from ureplicator_cli.output import fail
from ureplicator_cli.rest_client import RestClient, login_of_command, token_in
from ureplicator_common._version import __version__
from ureplicator_common.config.settings import Settings
from ureplicator_common.config.sources import merge_sources
from ureplicator_common.config.yaml_file import UnreadableFile
from ureplicator_common.whole_file import whole_file

MAX_LOG_BYTES = 32 << 20
"""The end of each log."""


@click.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Archive to write, as in diagnosis.tar.gz.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration file of the fleet: added without secrets, and its secrets are removed everywhere.",
)
@click.option(
    "--log",
    "logs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Log file to add. Repeatable.",
)
@click.option(
    "--page",
    "pages",
    multiple=True,
    metavar="URL",
    help="Page to add, as /metrics at controller.metrics_port. Repeatable.",
)
@click.option(
    "--pages-token-file",
    type=click.Path(path_type=Path),
    help="File with the token of pages (pages.token_file), for those of workers and of --page.",
)
@url_option
def diagnose(
    out: Path,
    config: Path | None,
    logs: tuple[Path, ...],
    pages: tuple[str, ...],
    pages_token_file: Path | None,
    url: str,
) -> None:
    """Write one archive for those who look for a fault.

    It holds what REST shows to the login, metrics of the fleet and of its workers, versions, the
    configuration, and the logs that are named: all without secrets. What does not respond is named in
    it.
    """
    for path in logs:
        if not path.is_file() or not os.access(path, os.R_OK):
            fail(f"{path} is no file that can be read")
    client = RestClient(url)
    try:
        tree = _tree(config) if config else {}
    except UnreadableFile as error:
        fail(str(error))
    reader = _page_reader(tree, pages_token_file)
    redactor = Redactor(secrets_in(tree) | client.secrets | ({reader.token} - {""}))
    try:
        members = itertools.chain(
            _members(client, tree, logs, redactor, reader), _pages(pages, redactor, reader)
        )
        count = _write(out, members)
    except OSError as error:
        fail(f"{out} cannot be written: {error.strerror} (name a file in an existing directory)")
    click.echo(f"{out}: {count} files")


def _tree(config: Path) -> dict[str, Any]:
    """Raises UnreadableFile. Faults of the configuration are no concern here."""
    tree, _ = merge_sources(
        config, environ=os.environ, overrides=(), sections=tuple(Settings.model_fields)
    )
    return tree


def _page_reader(tree: dict[str, Any], token_file: Path | None) -> PageReader:
    """A reader of pages, with TLS if the configuration says that pages have it."""
    tls = (tree.get("pages") or {}).get("tls") or {}
    ca = login_of_command().ca_file
    return PageReader(
        token=token_in(token_file) if token_file else "",
        tls=bool(tls.get("certificate_file")),
        ca=str(ca or ""),
    )


def _members(
    client: RestClient,
    tree: dict[str, Any],
    logs: tuple[Path, ...],
    redactor: Redactor,
    reader: PageReader,
) -> Iterator[tuple[str, str]]:
    """Names and texts, none of them with a secret."""
    yield "versions.txt", redactor.without_secrets(_versions())
    if tree:
        text = yaml.safe_dump(masked_tree(tree), sort_keys=False, allow_unicode=True)
        yield "config.yaml", redactor.without_any(text)
    states: tuple[Callable[[RestClient], Iterator[tuple[str, str]]], ...] = (
        rest_states,
        partial(worker_pages, reader=reader),
    )
    for read in states:
        for name, text in read(client):
            yield name, redactor.without_secrets(text)
    for number, path in enumerate(logs):
        yield f"logs/{number}-{path.name}", redactor.without_any(_end_of(path))


def _pages(
    urls: tuple[str, ...], redactor: Redactor, reader: PageReader
) -> Iterator[tuple[str, str]]:
    for number, url in enumerate(urls):
        yield f"pages/{number}.txt", redactor.without_any(f"{url}\n{reader.page(url)}")


def _versions() -> str:
    found = sorted(
        {f"{package.name} {package.version}" for package in distributions()}, key=str.lower
    )
    system = (
        f"ureplicator {__version__}\nPython {platform.python_version()}\n{platform.platform()}\n"
    )
    return system + "\n".join(found) + "\n"


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_LOG_BYTES))
        return file.read(MAX_LOG_BYTES).decode(errors="replace")


def _write(out: Path, members: Iterator[tuple[str, str]]) -> int:
    """Write a file that its owner alone may read; returns the number of members. Raises OSError."""
    count = 0
    with (
        whole_file(out, mode=0o600) as file,
        tarfile.open(fileobj=file, mode="w:gz") as archive,
    ):
        for name, text in members:
            data = text.encode()
            entry = tarfile.TarInfo(f"ureplicator-diagnosis/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))
            count += 1
    return count
