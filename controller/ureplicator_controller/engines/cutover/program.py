"""The program of a fence: gateways, DNS, deployments, whatever keeps clients from writing.

It is called as `PROGRAM fence|open|abort NAME`, with the plan as JSON on its standard input, by the leader on
its machine. 0 means done. Anything else, or no end within `TIMEOUT_S`, is tried again, so it may be called
twice. Only programs in the configured folder are called.
"""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

from ureplicator_common.cutovers import CutoverPlan
from ureplicator_common.errors import PermanentError, TemporaryError
from ureplicator_common.znodes.cutovers import encode_plan

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0
MAX_OUTPUT = 300
"""Characters of the output that are shown: the last ones."""


class FenceProgramMissing(PermanentError):
    """There is no such program in the folder, or there is no folder."""


class FenceProgramFailed(TemporaryError):
    """The program did not end with 0."""


def find_program(folder: str, name: str) -> Path:
    """The program by its name in the folder, or by its whole path there. Raises FenceProgramMissing."""
    if not folder:
        raise FenceProgramMissing(
            "programs of fences are switched off: set controller.fence_commands to their folder"
        )
    inside = Path(folder).resolve()
    program = (inside / name).resolve()
    if not (program.is_relative_to(inside) and program.is_file()):
        raise FenceProgramMissing(
            f"there is no program {name} in {folder} (controller.fence_commands)"
        )
    return program


class FolderPrograms:
    """`FenceProgram` of a folder."""

    def __init__(self, folder: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._folder = folder
        self._timeout_s = timeout_s

    def call(self, verb: str, name: str, plan: CutoverPlan) -> None:
        program = find_program(self._folder, plan.fence_command)
        try:
            ended = subprocess.run(  # noqa: S603  # of a folder that operators of the machine chose
                [program, verb, name],
                input=encode_plan(plan),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            text = _shown(error.stdout)
            raise FenceProgramFailed(
                f"{program.name} {verb} did not end within {self._timeout_s:g} s{text}"
            ) from error
        except OSError as error:
            raise FenceProgramMissing(f"{program} cannot be started: {error}") from error
        text = _shown(ended.stdout)
        if ended.returncode:
            raise FenceProgramFailed(f"{program.name} {verb} exited with {ended.returncode}{text}")
        log.info("cutover %s: %s %s is done%s", name, program.name, verb, text)


def _shown(output: bytes | None) -> str:
    text = (output or b"").decode(errors="replace").strip()
    return f": {text[-MAX_OUTPUT:]}" if text else ""
