"""Everything that a fleet shows: logs, responses of REST, pages of workers, nodes, command lines, commands.

To be searched for secrets. Each output has a name, so that a finding says where it is.
"""

from __future__ import annotations

import base64
import tarfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import psutil
import requests
from kazoo.client import KazooClient

from ureplicator_testkit.control.command import run
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.servers.processes import Process

COMMANDS = (
    ("status",),
    ("status", "--json"),
    ("instances",),
    ("topics",),
    ("routes",),
    ("limits",),
    ("groups",),
    ("history", "--json"),
    ("audits",),
)
PAGES = ("/status", "/health", "/metrics", "/config", "/")
PATH_PARAMETERS = {
    "topic": "t",
    "partition": "0",
    "worker": "w1",
    "group": "g",
    "task": "unknown",
    "name": "unknown",
}
"""Parameters of all GETs: name -> the value to ask for."""
TIMEOUT_S = 20


def outputs(
    fleet: Fleet,
    *,
    others: Mapping[str, Process],
    topic: str,
    token_file: str,
    hosts: str,
    user: str,
) -> Mapping[str, str]:
    """Name -> text. `others`: processes beside those of the fleet; `hosts`, `user`: of the tree,
    `name:password`."""
    return {
        **dict(_logs(fleet)),
        **dict(_responses(fleet, topic)),
        **dict(_pages(fleet)),
        **dict(_nodes(fleet, hosts, user)),
        **dict(_command_lines({**fleet.processes, **others})),
        **dict(_commands(fleet, token_file)),
        **dict(_archive(fleet, token_file)),
    }


def findings(shown: Mapping[str, str], secrets: Collection[str]) -> list[str]:
    """Names of the outputs that hold a secret, as it is or as headers and URLs have it."""
    forms = {form for secret in secrets for form in _forms(secret)}
    return [name for name, text in shown.items() if any(form in text for form in forms)]


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    yield base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]


def _logs(fleet: Fleet) -> Iterator[tuple[str, str]]:
    for path in fleet.folder.glob("*.log"):
        yield f"log {path.name}", path.read_text(errors="replace")


def _responses(fleet: Fleet, topic: str) -> Iterator[tuple[str, str]]:
    names = {**PATH_PARAMETERS, "topic": topic}
    paths = fleet.rest("GET", "/openapi.json")["paths"]
    for template in (path for path, item in paths.items() if "get" in item):
        path = template
        for name, value in names.items():
            path = path.replace(f"{{{name}}}", value)
        assert "{" not in path, f"{path}: a parameter without a value here"
        yield f"GET {template}", fleet.call("GET", path).text


def auditor_ports(fleet: Fleet) -> list[int]:
    """Ports of the pages of all live auditors."""
    found = fleet.rest("GET", "/audits")["auditors"].values()
    return [int(address.rpartition(":")[2]) for address in found]


def _pages(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """Pages of workers and auditors."""
    ports = [(worker, int(fleet.port_of(worker))) for worker in fleet.workers]
    ports += [("auditor", port) for port in auditor_ports(fleet)]
    for name, port in ports:
        for page in PAGES:
            url = f"http://127.0.0.1:{port}{page}"
            for login, headers in (("", {}), ("with token", fleet.page_headers)):
                found = requests.get(url, headers=headers, timeout=TIMEOUT_S)
                yield f"{name} {page} {login}", found.text


def _nodes(fleet: Fleet, hosts: str, user: str) -> Iterator[tuple[str, str]]:
    client = KazooClient(hosts, auth_data=[("digest", user)])
    client.start(timeout=TIMEOUT_S)
    try:
        waiting = [f"/ureplicator/{fleet.name}"]
        while waiting:
            path = waiting.pop()
            data, _ = client.get_async(path).get(timeout=TIMEOUT_S)
            yield path, f"{path} {data.decode(errors='replace')}"
            names = client.get_children_async(path).get(timeout=TIMEOUT_S)
            waiting += [f"{path}/{name}" for name in names]
    finally:
        client.stop()
        client.close()


def _command_lines(processes: Mapping[str, Process]) -> Iterator[tuple[str, str]]:
    for id, process in processes.items():
        for pid in process.tree():
            try:
                yield f"{id} {pid}", " ".join(psutil.Process(pid).cmdline())
            except psutil.NoSuchProcess:
                continue


def _archive(fleet: Fleet, token_file: str) -> Iterator[tuple[str, str]]:
    """Members of an archive of `ureplicator diagnose` with all logs, and one that holds a secret."""
    archive, planted = fleet.folder / "diagnosis.tar.gz", fleet.folder / "planted.txt"
    planted.write_text(f"token in a log: {Path(token_file).read_text()}")
    logs = [word for path in (*fleet.folder.glob("*.log"), planted) for word in ("--log", path)]
    config = fleet.config_of(next(iter(fleet.processes)))
    pages = ("--pages-token-file", fleet.pages_token_file) if fleet.pages_token_file else ()
    login = ("--token-file", token_file, *pages)
    words = ("diagnose", "--out", archive, "--config", config, *logs, *login)
    result = run(*words, url=fleet.url())
    assert result.exit_code == 0, result.output
    with tarfile.open(archive) as found:
        for member in found.getmembers():
            file = found.extractfile(member)
            assert file is not None
            yield f"archive {member.name}", file.read().decode()


def _commands(fleet: Fleet, token_file: str) -> Iterator[tuple[str, str]]:
    for words in COMMANDS:
        result = run(*words, "--token-file", token_file, url=fleet.url())
        assert result.exit_code == 0, (words, result.output)
        yield " ".join(words), result.output
    for id in fleet.processes:
        result = run("check-config", fleet.config_of(id))
        assert result.exit_code == 0, result.output
        yield f"check-config {id}", result.output
