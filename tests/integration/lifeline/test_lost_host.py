"""A host that vanishes: both ends of a lifeline notice, over a network that carries nothing back."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from ureplicator_testkit.servers.processes import deadline_factor

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

NOTICED_S = 15.0
"""Of a machine that does nothing else: where lanes share it, each end gets its processor late."""


def namespaces_work() -> bool:
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    if unshare is None or ip is None:
        return False
    command = [unshare, "-rn", ip, "link", "add", "v0", "type", "veth"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603


@pytest.mark.skipif(not namespaces_work(), reason="no network namespaces here")
@pytest.mark.parametrize("copier", ["sends", "idle"])
def test_both_ends_notice_a_lost_host_within_15_s(copier: str) -> None:
    module = "ureplicator_testkit.copier.lost_host"
    command = ["unshare", "-rn", sys.executable, "-m", module, copier]
    run = subprocess.run(  # noqa: S603
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    took_s = {name: float(s) for name, s in re.findall(r"^(\w+) ([\d.]+)$", run.stdout, re.M)}
    assert set(took_s) == {"driver", "copier"}, run.stderr
    assert max(took_s.values()) <= NOTICED_S * deadline_factor(), took_s
