"""The place of a process: a process id means a process only in one namespace of one running system.

Two containers of a host may have the same host name and use the same ids for other processes. So two
places are the same only with the same boot, the same namespace of process ids and the same host name (a
virtual machine that was cloned while it ran has the boot id of the original).
"""

from __future__ import annotations

import os
import socket
from pathlib import Path


def host() -> str:
    return socket.gethostname()


def pid_space() -> str:
    """Name of the space that this process has its id in; empty where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{host()}/{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
