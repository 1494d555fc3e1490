"""Memory that was freed is kept where the C library can do that; elsewhere nothing changes."""

import ctypes
import subprocess
import sys

import pytest

from ureplicator_worker.copier.loop.allocator import keep_freed_memory

FAULTS = """
import resource
from ureplicator_worker.copier.loop.allocator import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        [b"x" * (256 << 10) for _ in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if {keeps}:
    keep_freed_memory()
faults()
print(faults())
"""


def page_faults(*, keeps: bool) -> int:
    """Page faults of buffers of 256 KiB, of which eight are built and freed in turn, in a process of its
    own."""
    command = [sys.executable, "-c", FAULTS.format(keeps=keeps)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603


def test_a_process_uses_the_pages_again_that_it_freed() -> None:
    assert page_faults(keeps=False) > 2_000
    assert page_faults(keeps=True) < 200


def test_a_library_without_the_option_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_freed_memory()
