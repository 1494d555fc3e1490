"""Frames from the copier, read by a thread while a round is evaluated.

A round takes what is there. A socket holds a fraction of a megabyte, a chunk or two: without a thread that
empties it, every round of a backlog would be that small, and a round costs milliseconds whatever its size.
The copier limits what it sends ahead (`copier.record.handler_scheduler`), so the queue is bounded.
"""

from __future__ import annotations

import socket
import threading
from queue import SimpleQueue

from ureplicator_worker.copier.record.channel import READ_BYTES, Channel, CopierGone
from ureplicator_worker.copier.record.frames import Frame, FrameReader, MalformedFrame


class ReadAhead(Channel):
    """A channel that is read at all times. Its end, and what is no frame, come behind the frames before."""

    def __init__(self, peer: socket.socket) -> None:
        super().__init__(peer)
        self._queue: SimpleQueue[Frame | CopierGone | MalformedFrame] = SimpleQueue()
        threading.Thread(target=self._read, name="frames", daemon=True).start()

    def receive(self) -> Frame:
        """The next frame. Raises CopierGone, MalformedFrame."""
        found = self._queue.get()
        if isinstance(found, Exception):
            self._queue.put(found)
            raise found
        return found

    @property
    def readable(self) -> bool:
        """The copier has sent a whole frame more, or has gone."""
        return not self._queue.empty()

    def _read(self) -> None:
        reader = FrameReader()
        try:
            while data := self._peer.recv(READ_BYTES):
                for frame in reader.feed(data):
                    self._queue.put(frame)
            self._queue.put(CopierGone())
        except OSError:
            self._queue.put(CopierGone())
        except MalformedFrame as error:
            self._queue.put(error)
