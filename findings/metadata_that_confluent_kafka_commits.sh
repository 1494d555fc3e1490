#!/usr/bin/env bash
# The metadata of an offset that confluent-kafka for Python commits ends with a NUL byte in Kafka: the length that it
# hands to librdkafka counts the end of the C string. It does so for Consumer.commit, and for
# AdminClient.alter_consumer_group_offsets. Reading by itself, it stops at the first NUL, so its users never see the
# byte; every other client does. Metadata that are JSON are no JSON to a strict reader, and a tool that copies offsets
# finds metadata changed that it has just read and written.
#
# Seen with confluent-kafka 2.16.1 (librdkafka 2.16.0), read by itself and by kafka-python 3.0.12, from
# org.apache.kafka:kafka_2.13:4.1.0 on 127.0.0.1:
#   Consumer.commit: confluent-kafka reads '{"a":1}', kafka-python '{"a":1}\x00'
#   alter_consumer_group_offsets: confluent-kafka reads '{"a":1}', kafka-python '{"a":1}\x00'
#
# Needs Maven, Java 17 or later and Python 3.10 or later; fetches 60 MB. Fails if any of this changes.
set -euo pipefail
folder=$(mktemp -d)
broker=
trap 'kill "$broker" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

cat >pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.1.0</version>
    </dependency>
  </dependencies>
</project>
POM
cat >commits.py <<'PY'
import sys
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.structs import TopicPartition as KafkaPythonPartition

BOOTSTRAP, METADATA = sys.argv[1], '{"a":1}'


def by_consumer(admin, group):
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group})
    consumer.commit(offsets=[TopicPartition("t", 0, 5, metadata=METADATA)], asynchronous=False)
    consumer.close()


def by_admin(admin, group):
    offsets = [TopicPartition("t", 0, 5, metadata=METADATA)]
    wanted = [ConsumerGroupTopicPartitions(group, offsets)]
    admin.alter_consumer_group_offsets(wanted)[group].result()


def patiently(call):
    """Coordinators are elected first."""
    for _ in range(150):
        try:
            return call()
        except KafkaException as error:
            last = error
            time.sleep(0.2)
    raise last


admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
patiently(lambda: admin.create_topics([NewTopic("t", 1, 1)])["t"].result())
for name, commit in {"Consumer.commit": by_consumer, "alter_consumer_group_offsets": by_admin}.items():
    patiently(lambda: commit(admin, name))
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result()
    other = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    seen = other.list_group_offsets(name)[name]
    print(
        f"{name}: confluent-kafka reads {found.topic_partitions[0].metadata!r},"
        f" kafka-python {seen[KafkaPythonPartition('t', 0)].metadata!r}"
    )
    other.close()
PY
mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >mvn.log 2>&1 || { tail -n 5 mvn.log; exit 2; }
python3 -m venv venv
venv/bin/pip -q --disable-pip-version-check install confluent-kafka==2.16.1 kafka-python==3.0.12

read -r port controller < <(python3 -c 'import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*[each.getsockname()[1] for each in sockets])')
cat >server.properties <<PROPERTIES
node.id=1
process.roles=broker,controller
log.dirs=data
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:$controller
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
offsets.topic.replication.factor=1
PROPERTIES
java -cp 'jars/*' kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qk -c server.properties >format.log 2>&1
java -Xmx256m -cp 'jars/*' kafka.Kafka server.properties >broker.log 2>&1 &
broker=$!

timeout 200 venv/bin/python commits.py "127.0.0.1:$port" 2>python.log | tee seen.txt || { tail -n 5 python.log; exit 2; }

diff - seen.txt <<'EXPECTED'
Consumer.commit: confluent-kafka reads '{"a":1}', kafka-python '{"a":1}\x00'
alter_consumer_group_offsets: confluent-kafka reads '{"a":1}', kafka-python '{"a":1}\x00'
EXPECTED
echo "as stated"
