"""The folder in which a controller was started: no code of it runs in REST's process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ureplicator_controller.api.rest_process import command

HOSTILE = "from pathlib import Path\nPath('ran').write_text(__name__)\n\ndef app(*_): ...\n"


def test_no_module_and_no_configuration_of_the_current_folder_is_loaded(tmp_path: Path) -> None:
    for name in ("kafka.py", "probe.py", "gunicorn.conf.py", "json.py"):
        (tmp_path / name).write_text(HOSTILE)
    *options, _ = command(listen_fd=3)
    ended = subprocess.run(  # noqa: S603
        [*options, "--check-config", "probe:app"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "No module named 'probe'" in ended.stderr
    assert not (tmp_path / "ran").exists()
