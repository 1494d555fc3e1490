#!/usr/bin/env bash
# A clean restart makes a broker forget the producers' states of a partition whose log holds no record, as DeleteRecords
# took them all; timestamps of the present do not prevent it. So an idempotent producer's resend, answered
# as a duplicate before the restart, is appended a second time after it, without an error. If one record is left, of
# whichever producer, all states are kept, also of producers whose own records are gone. The cause: the snapshot of
# states that the broker writes at its shutdown is named by the log's end, and when it loads a log it removes snapshots
# that are not above the log's start.
#
# Seen with org.apache.kafka:kafka_2.13:4.1.0, one broker of KRaft on 127.0.0.1 (also with 4.3.0, where the classes of
# records lie in another package):
#   first producer, emptied: offset 0
#   first producer, one-left: offset 0
#   other producer, emptied: offset 1
#   other producer, one-left: offset 1
#   deleted, emptied: log from 2 to 2
#   deleted, one-left: log from 1 to 2
#   first producer again, emptied: offset 0
#   first producer again, one-left: offset 0
#   first producer again, after a restart, emptied: offset 2
#   first producer again, after a restart, one-left: offset 0
#
# Needs Maven and Java 17 or later; fetches 45 MB. Fails if any of this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
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
cat >Restart.java <<'JAVA'
import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.util.*;
import kafka.server.*;
import kafka.tools.StorageTool;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.requests.*;
import org.apache.kafka.common.utils.Time;

class Restart {
    static final long NOW_MS = System.currentTimeMillis();
    static final List<String> TOPICS = List.of("emptied", "one-left");
    static int port;

    public static void main(String[] arguments) throws Exception {
        port = freePort();
        var properties = format();
        var server = start(properties);
        try {
            long first;
            try (var admin = Admin.create(Map.of("bootstrap.servers", "127.0.0.1:" + port))) {
                admin.createTopics(TOPICS.stream().map(name -> new NewTopic(name, 1, (short) 1)).toList()).all().get();
                first = newProducerId();
                sendAll("first producer", first);
                sendAll("other producer", newProducerId());
                delete(admin, "emptied", 2);
                delete(admin, "one-left", 1);
            }
            sendAll("first producer again", first);
            stop(server);
            server = start(properties);
            sendAll("first producer again, after a restart", first);
        } finally {
            stop(server);
        }
    }

    /** Send sequence 0 to each topic, and print where it lies. */
    static void sendAll(String who, long producer) throws Exception {
        for (var topic : TOPICS) System.out.println(who + ", " + topic + ": " + produce(topic, producer, 0, 0, NOW_MS));
    }

    static void delete(Admin admin, String topic, long before) throws Exception {
        var partition = new TopicPartition(topic, 0);
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(before))).all().get();
        var end = admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset();
        System.out.println("deleted, " + topic + ": log from " + before + " to " + end);
    }

    /** The id of an idempotent producer that is not transactional. */
    static long newProducerId() throws Exception {
        var request = new InitProducerIdRequest.Builder(new InitProducerIdRequestData()
            .setTransactionalId(null).setTransactionTimeoutMs(60_000)).build((short) 4);
        for (int i = 0; ; i++) {
            var data = ((InitProducerIdResponse) call(request)).data();
            if (!again(Errors.forCode(data.errorCode()), i)) return data.producerId();
        }
    }

    /** Where a batch of one record lies, or the error. */
    static String produce(String topic, long producer, int epoch, int sequence, long timestampMs) throws Exception {
        var records = MemoryRecords.withIdempotentRecords(Compression.NONE, producer, (short) epoch, sequence,
            new SimpleRecord(timestampMs, "record".getBytes()));
        var data = new ProduceRequestData().setAcks((short) -1).setTimeoutMs(30_000);
        data.topicData().add(new ProduceRequestData.TopicProduceData().setName(topic).setPartitionData(
            List.of(new ProduceRequestData.PartitionProduceData().setIndex(0).setRecords(records))));
        for (int i = 0; ; i++) {
            var response = (ProduceResponse) call(new ProduceRequest(data, (short) 9));
            var answer = response.data().responses().iterator().next().partitionResponses().get(0);
            var error = Errors.forCode(answer.errorCode());
            if (!again(error, i)) return error == Errors.NONE ? "offset " + answer.baseOffset() : error.name();
        }
    }

    /** Whether to try again, after a pause, as a client does while leaders and coordinators are being elected. */
    static boolean again(Errors error, int tries) throws InterruptedException {
        if (tries == 300 || !(error.exception() instanceof RetriableException)) return false;
        Thread.sleep(100);
        return true;
    }

    /** The broker's answer to one request, over a connection of its own. */
    static AbstractResponse call(AbstractRequest request) throws IOException {
        var header = new RequestHeader(request.apiKey(), request.version(), "finding", 1);
        var bytes = request.serializeWithHeader(header);
        try (var socket = new Socket("127.0.0.1", port)) {
            var out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream()));
            out.writeInt(bytes.remaining());
            out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
            out.flush();
            var in = new DataInputStream(socket.getInputStream());
            return AbstractResponse.parseResponse(ByteBuffer.wrap(in.readNBytes(in.readInt())), header);
        }
    }

    /** The properties of a broker that is its own controller; its folder is formatted. */
    static Properties format() throws IOException {
        var controller = "127.0.0.1:" + freePort();
        var properties = new Properties();
        properties.putAll(Map.of(
            "node.id", "1", "process.roles", "broker,controller", "log.dirs", "data",
            "listeners", "PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://" + controller,
            "advertised.listeners", "PLAINTEXT://127.0.0.1:" + port,
            "controller.listener.names", "CONTROLLER", "controller.quorum.voters", "1@" + controller,
            "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"));
        try (var file = new FileWriter("server.properties")) {
            properties.store(file, null);
        }
        StorageTool.execute(new String[] {"format", "-t", Uuid.randomUuid().toString(), "-c", "server.properties"},
            new PrintStream(OutputStream.nullOutputStream()));
        return properties;
    }

    /** Start a broker as `kafka.Kafka` does. */
    static KafkaRaftServer start(Properties properties) {
        var server = new KafkaRaftServer(new KafkaConfig(properties), Time.SYSTEM);
        server.startup();
        return server;
    }

    static void stop(KafkaRaftServer server) {
        server.shutdown();
        server.awaitShutdown();
    }

    static int freePort() throws IOException {
        try (var socket = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
            return socket.getLocalPort();
        }
    }
}
JAVA
mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >mvn.log 2>&1 || { tail -n 5 mvn.log; exit 2; }

timeout 300 java -Xmx320m -cp 'jars/*' Restart.java 2>java.log | tee seen.txt || { tail -n 5 java.log; exit 2; }

diff - seen.txt <<'EXPECTED'
first producer, emptied: offset 0
first producer, one-left: offset 0
other producer, emptied: offset 1
other producer, one-left: offset 1
deleted, emptied: log from 2 to 2
deleted, one-left: log from 1 to 2
first producer again, emptied: offset 0
first producer again, one-left: offset 0
first producer again, after a restart, emptied: offset 2
first producer again, after a restart, one-left: offset 0
EXPECTED
echo "as stated"
