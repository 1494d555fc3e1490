"""Reading of this machine: versions, limits, clock, and the port of REST."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import pwd
import resource
import socket
from pathlib import Path

from ureplicator_cli.doctor.facts import HostFacts, RestFacts
from ureplicator_common._version import __version__
from ureplicator_common.config.roles import ControllerSettings
from ureplicator_common.errors import PermanentError

_TIMEX_BYTES = 1_024
"""Bytes of a buffer, more than the system's `struct timex` has; all zeros ask for the state and change
nothing."""
_TIME_ERROR = 5


def read_host() -> HostFacts:
    java, java_failure = _java()
    name, user_id = socket.gethostname(), os.getuid()
    return HostFacts(
        python=platform.python_version(),
        version=__version__,
        java=java,
        java_failure=java_failure,
        pyspark=_installed("pyspark"),
        open_files=_open_files(),
        memory_bytes=_memory(),
        is_clock_synchronised=_is_clock_synchronised(),
        name=name,
        name_address=_address(name),
        user_id=user_id,
        user_name=_user_name(user_id),
    )


def read_rest(settings: ControllerSettings) -> RestFacts:
    return RestFacts(
        address=f"{settings.host}:{settings.port}",
        port_failure=_port_failure(settings.host, settings.port),
        mode=settings.access.mode,
        has_tls=settings.tls.enabled,
    )


def _java() -> tuple[str, str]:
    """The `java` that Spark would run, and the failure."""
    try:
        from ureplicator_worker.engines.jvm import find_java
    except ImportError:
        return "", "Java was not looked for, since pyspark is not installed"
    try:
        return find_java(), ""
    except PermanentError as error:
        return "", str(error)


def _installed(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _address(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except (OSError, UnicodeError):
        return ""


def _user_name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return ""


def _open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def _memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1_024 if found else None


def _is_clock_synchronised() -> bool | None:
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    state = adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)) if adjtimex else -1
    return None if state < 0 else state != _TIME_ERROR


def _port_failure(host: str, port: int) -> str:
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.strerror or str(error)
    return ""
