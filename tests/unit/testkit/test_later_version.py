"""The later version that tests of upgrades install."""

import os
import subprocess
import sys
from pathlib import Path

from ureplicator_testkit.fleet import later_version

SHOW = (
    "from ureplicator_common._version import __version__ as version;"
    "from ureplicator_common.znodes.codec import encode;"
    "print(version, encode({'a': 1}).decode())"
)


def test_it_writes_what_this_version_does_not_know(tmp_path: Path) -> None:
    env = {**os.environ, **later_version.install(tmp_path)}
    shown = subprocess.run(  # noqa: S603
        [sys.executable, "-c", SHOW], env=env, capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == [later_version.VERSION, '{"a":1,"later":[1]}']
