#!/usr/bin/env bash
# A broker recognises an idempotent producer's resend as a duplicate while it holds the producer's state of the
# partition. That state ages by the timestamp of the producer's last batch, which with CreateTime the producer chose,
# not by the time at which the batch was written. Where records are older than `producer.id.expiration.ms` (a day by
# default, as here), as in a copy that keeps the timestamps, the state is gone at the next sweep, though the producer
# has just written: the same batch with the same sequence is appended a second time, without an error. Only the last
# batch counts. With LogAppendTime the state stays. Sweeps come every ten minutes; here every second, by the internal
# `producer.id.expiration.check.interval.ms`.
#
# Seen with org.apache.kafka:kafka_2.13:4.1.0, one broker of KRaft on 127.0.0.1 (also with 4.3.0, where the classes of
# records lie in another package):
#   sent:
#     present: offset 0
#     old: offset 0
#     old-LogAppendTime: offset 0
#     old-then-present: offset 0, offset 1
#     present-then-old: offset 0, offset 1
#   the same sent again:
#     present: offset 0
#     old: offset 1
#     old-LogAppendTime: offset 0
#     old-then-present: offset 0, offset 1
#     present-then-old: offset 2, offset 3
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
cat >Ages.java <<'JAVA'
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

class Ages {
    static final long NOW_MS = System.currentTimeMillis();
    static final long YEAR_AGO_MS = NOW_MS - 365L * 24 * 60 * 60 * 1000;
    static int port;

    public static void main(String[] arguments) throws Exception {
        port = freePort();
        var server = start(format());
        try (var admin = Admin.create(Map.of("bootstrap.servers", "127.0.0.1:" + port))) {
            admin.createTopics(List.of(topic("present"), topic("old"), topic("old-then-present"),
                topic("present-then-old"), topic("old-LogAppendTime").configs(
                    Map.of("message.timestamp.type", "LogAppendTime")))).all().get();
            var producer = newProducerId();
            System.out.println("sent:");
            sendAll(producer);
            awaitForgotten(admin, "old");
            awaitForgotten(admin, "present-then-old");
            Thread.sleep(3000);  // three sweeps more, in which the other states stay
            System.out.println("the same sent again:");
            sendAll(producer);
        } finally {
            stop(server);
        }
    }

    static void sendAll(long producer) throws Exception {
        send(producer, "present", NOW_MS);
        send(producer, "old", YEAR_AGO_MS);
        send(producer, "old-LogAppendTime", YEAR_AGO_MS);
        send(producer, "old-then-present", YEAR_AGO_MS, NOW_MS);
        send(producer, "present-then-old", NOW_MS, YEAR_AGO_MS);
    }

    /** Send a batch of one record for each timestamp, with sequences from 0, and print where they lie. */
    static void send(long producer, String topic, long... timestampsMs) throws Exception {
        var answers = new ArrayList<String>();
        for (int i = 0; i < timestampsMs.length; i++) answers.add(produce(topic, producer, 0, i, timestampsMs[i]));
        System.out.println("  " + topic + ": " + String.join(", ", answers));
    }

    static NewTopic topic(String name) {
        return new NewTopic(name, 1, (short) 1);
    }

    /** Wait, up to a minute, until the broker has no state of producers of the topic. */
    static void awaitForgotten(Admin admin, String topic) throws Exception {
        var partition = new TopicPartition(topic, 0);
        for (int i = 0; i < 600; i++) {
            var found = admin.describeProducers(List.of(partition)).partitionResult(partition).get();
            if (found.activeProducers().isEmpty()) return;
            Thread.sleep(100);
        }
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
            "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "producer.id.expiration.check.interval.ms", "1000"));
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

timeout 300 java -Xmx320m -cp 'jars/*' Ages.java 2>java.log | tee seen.txt || { tail -n 5 java.log; exit 2; }

diff - seen.txt <<'EXPECTED'
sent:
  present: offset 0
  old: offset 0
  old-LogAppendTime: offset 0
  old-then-present: offset 0, offset 1
  present-then-old: offset 0, offset 1
the same sent again:
  present: offset 0
  old: offset 1
  old-LogAppendTime: offset 0
  old-then-present: offset 0, offset 1
  present-then-old: offset 2, offset 3
EXPECTED
echo "as stated"
