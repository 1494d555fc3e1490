"""Expires the ZooKeeper session of another process, while that process stays healthy.

A client that knows a session's id and password may resume the session, and close it. The password is
no secret of the process: servers derive it from the id (`ZooKeeperServer.generatePasswd`), so that
any of them can check it.
"""

from kazoo.client import KazooClient

SERVER_SECRET = 0xB3415C00
MULTIPLIER, INCREMENT, MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1  # of java.util.Random
CONNECT_S = 10.0


def password_of(session: int) -> bytes:
    """16 bytes of Java's random numbers, seeded by the session id."""
    state = ((session ^ SERVER_SECRET) ^ MULTIPLIER) & MASK
    words = []
    for _ in range(4):
        state = (state * MULTIPLIER + INCREMENT) & MASK
        words.append((state >> 16).to_bytes(4, "little"))
    return b"".join(words)


def expire(hosts: str, session: int) -> None:
    """Resume the session and close it: its ephemeral nodes are gone when this returns."""
    twin = KazooClient(hosts, timeout=CONNECT_S, client_id=(session, password_of(session)))
    twin.start(CONNECT_S)
    taken = twin.client_id
    twin.stop()
    twin.close()
    assert taken is not None
    assert taken[0] == session, "the server opened a new session instead"
