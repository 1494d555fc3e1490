"""The part of requirements.lock that one role needs, with its hashes.

role_lock.py wanted pyproject.toml ROLE      what the role requires, one requirement a line
role_lock.py versions requirements.lock      the lock without hashes: constraints for pip's resolver
role_lock.py part requirements.lock REPORT   the blocks of the packages that pip's report names
"""

import json
import re
import sys
import tomllib
from pathlib import Path


def wanted(pyproject: str, role: str) -> str:
    project = tomllib.loads(Path(pyproject).read_text())["project"]
    return "\n".join([*project["dependencies"], *project["optional-dependencies"][role]])


def versions(lock: str) -> str:
    return "\n".join(block.partition(" \\")[0] for block in _blocks(lock))


def part(lock: str, report: str) -> str:
    installed = json.loads(Path(report).read_text())["install"]
    names = {_plain(package["metadata"]["name"]) for package in installed}
    blocks = [block for block in _blocks(lock) if _plain(block.partition("==")[0]) in names]
    if len(blocks) < len(names):
        raise SystemExit("requirements.lock lacks a package")
    return "\n".join(blocks)


def _blocks(lock: str) -> list[str]:
    return re.split(r"\n(?=\S)", Path(lock).read_text().strip())


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    action, *arguments = sys.argv[1:]
    print({"wanted": wanted, "versions": versions, "part": part}[action](*arguments))
