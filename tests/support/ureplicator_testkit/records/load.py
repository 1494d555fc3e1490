"""A producer that runs in the background during a fault."""

import threading
from typing import Self

from confluent_kafka import Producer

BURST = 20
FLUSH_S = 60


class Load:
    """Produces until `stop`; counts what was acknowledged."""

    def __init__(
        self, bootstrap: str, topic: str, *, partitions: int, records_per_s: int = 1_000
    ) -> None:
        self._topic, self._partitions = topic, partitions
        self._pause_s = BURST / records_per_s
        self._stopping = threading.Event()
        self._sent = 0
        self.acknowledged = 0
        self.refused: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 5,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Everything sent is acknowledged when this returns."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
            assert self._producer.flush(FLUSH_S) == 0
            assert not self.refused, self.refused[:3]
            assert self.acknowledged == self._sent > 0, (self.acknowledged, self._sent)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_s):
            for _ in range(BURST):
                self._send()
            self._producer.poll(0)

    def _send(self) -> None:
        value = b"%d" % self._sent
        partition = self._sent % self._partitions
        try:
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._delivered
            )
            self._sent += 1
        except BufferError:
            self._producer.poll(0.1)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.refused.append(error)
