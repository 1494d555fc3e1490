"""A consumer of Kafka's own library in a JVM of its own: some behave otherwise than librdkafka's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import JavaGateway  # no stubs

from ureplicator_testkit.servers.java import KAFKA_VERSION, java_executable, kafka_jars

HEAP_MB = 128
STRINGS = "org.apache.kafka.common.serialization.StringDeserializer"


class JavaConsumer:
    """`KafkaConsumer` of the JVM. `jvm`: as py4j shows it."""

    def __init__(self, jvm: Any, properties: dict[str, str]) -> None:
        self._jvm = jvm
        filled = jvm.java.util.Properties()
        for name, value in properties.items():
            filled.setProperty(name, value)
        self._consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(filled)

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe(self._jvm.java.util.List.of(topic))

    def poll(self, timeout_ms: int) -> list[int]:
        """Offsets of the records that were read."""
        records = self._consumer.poll(self._jvm.java.time.Duration.ofMillis(timeout_ms))
        iterator = records.iterator()
        found = []
        while iterator.hasNext():
            found.append(int(iterator.next().offset()))
        return found

    def is_assigned(self) -> bool:
        """True if it has got partitions."""
        return not self._consumer.assignment().isEmpty()

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def java_consumers(version: str = KAFKA_VERSION) -> Iterator[Any]:
    """A JVM with the classes of a version of Kafka, as py4j shows it."""
    (bridge,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(
        jarpath=str(bridge),
        classpath=f"{kafka_jars(version)}/*",
        java_path=str(java_executable()),
        javaopts=[f"-Xmx{HEAP_MB}m", "-XX:+UseSerialGC", "-XX:-UsePerfData"],
        die_on_exit=True,
    )
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.java_process.stdin.close()  # the end for the JVM
        gateway.java_process.wait(timeout=20)


def properties_of(bootstrap: str, group: str, **more: str) -> dict[str, str]:
    """Properties of a consumer that refreshes its metadata by itself every five minutes, and otherwise
    at once."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "key.deserializer": STRINGS,
        "value.deserializer": STRINGS,
        "auto.offset.reset": "none",
        "enable.auto.commit": "false",
        "retry.backoff.ms": "50",
        "retry.backoff.max.ms": "50",
        **more,
    }
