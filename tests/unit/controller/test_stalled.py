"""A controller ends when its control loop hangs, and not when it waits for ZooKeeper."""

from __future__ import annotations

from contextlib import ExitStack
from typing import cast

import pytest

from ureplicator_common.clock import SystemClock
from ureplicator_common.config.settings import Settings
from ureplicator_common.errors import PermanentError
from ureplicator_common.stop_flag import StopFlag
from ureplicator_controller.api.rest_process import WsgiConfig
from ureplicator_controller.daemon import STALL_TIMEOUT_S, Controller
from ureplicator_controller.engines.control_loop import ControlLoop


class SilentLoop:
    """A loop that began its present round a while ago."""

    failure: PermanentError | None = None

    def __init__(self, silent_s: float) -> None:
        self.last_cycle_at_s = SystemClock().monotonic_s() - silent_s

    def is_alive(self) -> bool:
        return True


def check(silent_s: float, *, session_timeout_s: float) -> None:
    settings = Settings.model_validate(
        {
            "fleet": "f",
            "zookeeper": {"hosts": "127.0.0.1:1", "session_timeout_s": session_timeout_s},
            "clusters": {name: {"bootstrap.servers": f"{name}:1"} for name in ("a", "b")},
            "routes": [{"source": "a", "target": "b"}],
        }
    )
    with ExitStack() as closing:
        controller = Controller(
            settings,
            id="c",
            wsgi=WsgiConfig(config=""),
            stopping=StopFlag(),
            closing=closing,
        )
        controller._check_stalled(cast("ControlLoop", SilentLoop(silent_s)))


@pytest.mark.parametrize("session_timeout_s", [10, 59, 61, 120])
def test_a_request_to_zookeeper_may_take_the_session_timeout(session_timeout_s: float) -> None:
    check(session_timeout_s + 30, session_timeout_s=session_timeout_s)


@pytest.mark.parametrize("session_timeout_s", [10, 120])
def test_a_loop_that_hangs_ends_the_process(session_timeout_s: float) -> None:
    with pytest.raises(PermanentError, match="no progress"):
        check(session_timeout_s + STALL_TIMEOUT_S + 1, session_timeout_s=session_timeout_s)
