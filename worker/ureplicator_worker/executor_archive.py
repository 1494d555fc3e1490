"""The packages of this environment in one file for Spark's executors.

What a copier imports is copied from the environment of this process, the worker's own: the same versions,
without a package registry. Spark unpacks the file on each executor, beside the working folder of
its Python processes. Python itself and Spark are the cluster's: the file has neither.
"""

from __future__ import annotations

import importlib.util
import re
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from ureplicator_common.errors import PermanentError

PRODUCT = "ureplicator"
OWN_PACKAGES = ("ureplicator_common", "ureplicator_worker")
SPARK = frozenset({"pyspark", "py4j"})
"""Executors have them from their Spark."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def pack(file: Path, extra: Sequence[str]) -> str:
    """Write the file, with `extra` distributions and what they require; what it has, in one line.

    Raises PermanentError.
    """
    try:
        found = required_distributions((PRODUCT, *extra))
        count = _write(file, found)
    except PackageNotFoundError as error:
        raise PermanentError(f"{error.name} is not installed here") from error
    except OSError as error:
        raise PermanentError(f"{file}: cannot be written: {error.strerror or error}") from error
    return f"{count} files of {', '.join(sorted(found))}"


def required_distributions(names: Sequence[str]) -> dict[str, Distribution]:
    """Distributions: these and all that they require, by name, without Spark. Raises PackageNotFoundError.

    A requirement of an extra or another system may be missing: what is installed is what is used.
    """
    found: dict[str, Distribution] = {}
    waiting = [(name, True) for name in names]
    while waiting:
        name, must_exist = waiting.pop()
        key = name.lower().replace("_", "-")
        if key in found or key in SPARK:
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:
            if must_exist:
                raise
            continue
        waiting += [(required, False) for required in _requirements(found[key], key)]
    return found


def _requirements(dist: Distribution, name: str) -> Iterator[str]:
    """Names of what it requires; of extras only those that a worker is installed with."""
    for text in dist.requires or ():
        requirement, _, marker = text.partition(";")
        if "extra ==" in marker and not (name == PRODUCT and "worker" in marker):
            continue
        match = _NAME.match(requirement)
        if match:
            yield match[0]


def _write(file: Path, distributions: dict[str, Distribution]) -> int:
    """Number of files that are in it."""
    written = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path, name in _files(distributions):
            archive.write(path, name)
            written += 1
    return written


def _files(distributions: dict[str, Distribution]) -> Iterator[tuple[Path, str]]:
    """Our own packages from where they are imported from: an editable install has no files of them."""
    for name in OWN_PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        for folder in spec.submodule_search_locations or ():
            root = Path(folder)
            for path in sorted(root.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield path, str(Path(name) / path.relative_to(root))
    for key, dist in distributions.items():
        if key == PRODUCT:
            continue
        for entry in dist.files or ():
            path = Path(str(dist.locate_file(entry)))
            outside = ".." in entry.parts or "__pycache__" in entry.parts
            if path.is_file() and not outside:
                yield path, str(entry)
