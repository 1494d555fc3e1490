"""Options of the lifeline's sockets: a peer whose host is gone is noticed within 15 s.

A process that ends closes its connections. A host that loses power, or its network, closes nothing: the
other end would wait for hours with nothing to send, and for a quarter of an hour with something.

    nothing sent      probes after 4 s of silence, then every 2 s
    sent, no ACK      the user timeout counts from the first byte without an acknowledgement
    probes, no ACK    the user timeout counts from the last byte that came (Linux then ignores TCP_KEEPCNT)

So either end notices after 12 s at the earliest and 14 s at the latest. A peer that is alive, but whose
process is stopped, acknowledges until its receive buffer is full; after another 12 s it counts as lost,
too.
"""

from __future__ import annotations

import socket

KEEPALIVE_AFTER_S = 4
KEEPALIVE_EVERY_S = 2
KEEPALIVE_PROBES = 4
USER_TIMEOUT_MS = 12_000


def notice_lost_peer(connection: socket.socket) -> None:
    """Set the options of a lifeline; messages are small, and each is sent at once."""
    tcp = socket.IPPROTO_TCP
    connection.setsockopt(tcp, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(tcp, socket.TCP_KEEPIDLE, KEEPALIVE_AFTER_S)
    connection.setsockopt(tcp, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S)
    connection.setsockopt(tcp, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    connection.setsockopt(tcp, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
