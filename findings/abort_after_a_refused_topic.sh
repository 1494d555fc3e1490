#!/usr/bin/env bash
# A transactional producer of librdkafka whose principal loses WRITE on a topic cannot abort the transaction that begins
# next: its only partition is refused (AddPartitionsToTxn), commit_transaction() fails and says that the transaction is
# to be aborted, and abort_transaction() then raises a *fatal* error. librdkafka sends EndTxn although nothing was added
# to the transaction; brokers refuse that unless the transaction before was aborted (INVALID_TXN_STATE). The producer is
# of no use any more, also when the right is back: an application that does as the API says must make another one.
# Kafka's own client sends no EndTxn then; it aborts, and goes on when the right is back. A transaction that had a record
# before the right was taken is aborted by both, and even committed if nothing more is sent.
#
# Seen with confluent-kafka 2.16.1 (librdkafka 2.16.0) and org.apache.kafka:kafka_2.13:4.1.0 (broker and client) on
# 127.0.0.1; the same with brokers 3.9.2 and 4.4.0:
#   librdkafka, denied behind the first record: record TOPIC_AUTHORIZATION_FAILED, commit TOPIC_AUTHORIZATION_FAILED (abort it), abort done
#   librdkafka, denied before the first record: record _PURGE_QUEUE, commit TOPIC_AUTHORIZATION_FAILED (abort it), abort INVALID_TXN_STATE (fatal)
#   librdkafka, allowed again: begin INVALID_TXN_STATE (fatal)
#   Java, denied before the first record: record TopicAuthorizationException, commit KafkaException, abort done
#   Java, allowed again: record done, commit done
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
cat >refused.py <<'PY'
import sys
import time

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

BOOTSTRAP, ALL = sys.argv[1], (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
DENIED = (*ALL, AclOperation.WRITE, AclPermissionType.DENY)
admin = AdminClient({"bootstrap.servers": BOOTSTRAP})


def patiently(call):
    """Coordinators are elected first."""
    for _ in range(150):
        try:
            return call()
        except KafkaException as error:
            last = error
            time.sleep(0.2)
    raise last


def rights(change, *args):
    """Change them, and give the broker a second to read that."""
    for future in change(list(args)).values():
        future.result()
    time.sleep(1)


def outcome(call, *args):
    try:
        call(*args)
        return "done"
    except KafkaException as raised:
        return named(raised.args[0])


def named(error):
    flags = {" (fatal)": error.fatal(), " (abort it)": error.txn_requires_abort()}
    return error.name() + "".join(text for text, holds in flags.items() if holds)


def send(producer):
    reports = []
    producer.produce("t", b"v", on_delivery=lambda error, _: reports.append(named(error) if error else "done"))
    deadline_s = time.monotonic() + 30
    while not reports and time.monotonic() < deadline_s:
        producer.poll(0.1)
    return reports[0]


def denied(producer, behind):
    """A transaction whose right is taken: outcomes of a record, the commit and the abort."""
    producer.begin_transaction()
    if behind:
        assert send(producer) == "done"
    rights(admin.create_acls, AclBinding(*DENIED))
    record = send(producer)
    commit, abort = outcome(producer.commit_transaction, 30), outcome(producer.abort_transaction, 30)
    rights(admin.delete_acls, AclBindingFilter(*DENIED))
    return f"record {record}, commit {commit}, abort {abort}"


def producer():
    """One that has committed a transaction."""
    made = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": "own", "log_level": 0})
    made.init_transactions(30)
    made.begin_transaction()
    assert send(made) == "done"
    made.commit_transaction(30)
    return made


patiently(lambda: admin.create_topics([NewTopic("t", 1, 1)])["t"].result())
rights(admin.create_acls, AclBinding(*ALL, AclOperation.ALL, AclPermissionType.ALLOW))
print("librdkafka, denied behind the first record:", denied(patiently(producer), True))
second = producer()
print("librdkafka, denied before the first record:", denied(second, False))
print("librdkafka, allowed again: begin", outcome(second.begin_transaction))
PY
cat >Refused.java <<'JAVA'
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.StringSerializer;

class Refused {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "transactional.id", "java");
        var denied = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL),
            new AccessControlEntry("User:ANONYMOUS", "*", AclOperation.WRITE, AclPermissionType.DENY));
        try (var admin = Admin.create(Map.of("bootstrap.servers", arguments[0]));
             var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer);
            producer.commitTransaction();

            producer.beginTransaction();
            admin.createAcls(List.of(denied)).all().get();
            Thread.sleep(1_000);
            System.out.println("Java, denied before the first record: record " + outcome(() -> send(producer))
                + ", commit " + outcome(producer::commitTransaction) + ", abort " + outcome(producer::abortTransaction));
            admin.deleteAcls(List.of(denied.toFilter())).all().get();
            Thread.sleep(1_000);
            producer.beginTransaction();
            System.out.println("Java, allowed again: record " + outcome(() -> send(producer))
                + ", commit " + outcome(producer::commitTransaction));
        }
    }

    static void send(KafkaProducer<String, String> producer) throws Exception {
        producer.send(new ProducerRecord<>("t", "v")).get(30, TimeUnit.SECONDS);
    }

    interface Call { void make() throws Exception; }

    static String outcome(Call call) {
        try {
            call.make();
            return "done";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }
}
JAVA
mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >mvn.log 2>&1 || { tail -n 5 mvn.log; exit 2; }
python3 -m venv venv
venv/bin/pip -q --disable-pip-version-check install confluent-kafka==2.16.1

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
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
PROPERTIES
java -cp 'jars/*' kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qk -c server.properties >format.log 2>&1
java -Xmx256m -cp 'jars/*' kafka.Kafka server.properties >broker.log 2>&1 &
broker=$!

timeout 200 venv/bin/python refused.py "127.0.0.1:$port" 2>python.log | tee seen.txt || { tail -n 5 python.log; exit 2; }
timeout 200 java -Xmx128m -cp 'jars/*' Refused.java "127.0.0.1:$port" 2>java.log | tee -a seen.txt \
    || { tail -n 5 java.log; exit 2; }

diff - seen.txt <<'EXPECTED'
librdkafka, denied behind the first record: record TOPIC_AUTHORIZATION_FAILED, commit TOPIC_AUTHORIZATION_FAILED (abort it), abort done
librdkafka, denied before the first record: record _PURGE_QUEUE, commit TOPIC_AUTHORIZATION_FAILED (abort it), abort INVALID_TXN_STATE (fatal)
librdkafka, allowed again: begin INVALID_TXN_STATE (fatal)
Java, denied before the first record: record TopicAuthorizationException, commit KafkaException, abort done
Java, allowed again: record done, commit done
EXPECTED
echo "as stated"
