#!/usr/bin/env bash
# WriteTxnMarkers, by which coordinators end transactions, also serves a plain idempotent producer: with its own id and
# epoch each entry of the request appends one control record, which takes an offset that no consumer sees, and its
# sequence goes on behind them as if nothing had come between. So a producer makes gaps of offsets in its own log.
#
# What the response leaves out: it has one outcome for each producer id and partition, not one for each entry: the last
# one. Of three entries whose second is refused it says NONE, though only two control records were appended. A
# coordinator epoch below that of the producer's last control record is refused; other producers are not affected.
#
# Seen with org.apache.kafka:kafka_2.13:4.1.0, one broker of KRaft on 127.0.0.1:
#   plain batch, sequence 0: offset 0
#   500 entries: outcomes {t-0=NONE}, next offset 501
#   plain batch, sequence 0 again: offset 0
#   plain batch, sequence 2: OUT_OF_ORDER_SEQUENCE_NUMBER
#   plain batch, sequence 1: offset 501
#   coordinator epochs 7, 6, 7: outcomes {t-0=NONE}, next offset 504
#   coordinator epoch 6: outcomes {t-0=TRANSACTION_COORDINATOR_FENCED}, next offset 504
#   coordinator epoch 0 of another producer: outcomes {t-0=NONE}, next offset 505
#   offsets that a consumer sees: [0, 501]
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
cat >Fill.java <<'JAVA'
import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.*;
import kafka.server.*;
import kafka.tools.StorageTool;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.requests.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.Time;

class Fill {
    static final TopicPartition PARTITION = new TopicPartition("t", 0);
    static int port;

    public static void main(String[] arguments) throws Exception {
        port = freePort();
        var server = start(format());
        try (var admin = Admin.create(Map.of("bootstrap.servers", "127.0.0.1:" + port))) {
            admin.createTopics(List.of(new NewTopic("t", 1, (short) 1))).all().get();
            long own = newProducer(), other = newProducer();
            System.out.println("plain batch, sequence 0: " + send(own, 0));
            System.out.println("500 entries: " + mark(own, Collections.nCopies(500, 0)));
            System.out.println("plain batch, sequence 0 again: " + send(own, 0));
            System.out.println("plain batch, sequence 2: " + send(own, 2));
            System.out.println("plain batch, sequence 1: " + send(own, 1));
            System.out.println("coordinator epochs 7, 6, 7: " + mark(own, List.of(7, 6, 7)));
            System.out.println("coordinator epoch 6: " + mark(own, List.of(6)));
            System.out.println("coordinator epoch 0 of another producer: " + mark(other, List.of(0)));
            System.out.println("offsets that a consumer sees: " + consumed());
        } finally {
            stop(server);
        }
    }

    /** An id of a producer without transactions. */
    static long newProducer() throws Exception {
        var data = new InitProducerIdRequestData().setTransactionalId(null).setTransactionTimeoutMs(60_000);
        for (int i = 0; ; i++) {
            var answer = (InitProducerIdResponse) call(new InitProducerIdRequest.Builder(data).build((short) 4));
            if (!again(answer.error(), i)) return answer.data().producerId();
        }
    }

    static String send(long producer, int sequence) throws Exception {
        return produce("t", producer, 0, sequence, System.currentTimeMillis());
    }

    /** An entry for each of these coordinator epochs, in one request; its outcomes, and the end of the log. */
    static String mark(long producer, List<Integer> coordinatorEpochs) throws Exception {
        var entries = coordinatorEpochs.stream().map(epoch -> new WriteTxnMarkersRequest.TxnMarkerEntry(
            producer, (short) 0, epoch, TransactionResult.ABORT, List.of(PARTITION))).toList();
        var request = new WriteTxnMarkersRequest.Builder(entries).build((short) 1);
        var outcomes = ((WriteTxnMarkersResponse) call(request)).errorsByProducerId().get(producer);
        return "outcomes " + outcomes + ", next offset " + end();
    }

    static long end() throws Exception {
        try (var consumer = consumer()) {
            return consumer.endOffsets(List.of(PARTITION)).get(PARTITION);
        }
    }

    static List<Long> consumed() throws Exception {
        try (var consumer = consumer()) {
            consumer.assign(List.of(PARTITION));
            consumer.seekToBeginning(List.of(PARTITION));
            var found = new ArrayList<Long>();
            while (consumer.position(PARTITION) < end()) {
                for (var record : consumer.poll(Duration.ofMillis(100))) found.add(record.offset());
            }
            return found;
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer() {
        Map<String, Object> settings = Map.of("bootstrap.servers", "127.0.0.1:" + port);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
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
            "transaction.state.log.replication.factor", "1", "transaction.state.log.min.isr", "1"));
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

timeout 300 java -Xmx320m -cp 'jars/*' Fill.java 2>java.log | tee seen.txt || { tail -n 5 java.log; exit 2; }

diff - seen.txt <<'EXPECTED'
plain batch, sequence 0: offset 0
500 entries: outcomes {t-0=NONE}, next offset 501
plain batch, sequence 0 again: offset 0
plain batch, sequence 2: OUT_OF_ORDER_SEQUENCE_NUMBER
plain batch, sequence 1: offset 501
coordinator epochs 7, 6, 7: outcomes {t-0=NONE}, next offset 504
coordinator epoch 6: outcomes {t-0=TRANSACTION_COORDINATOR_FENCED}, next offset 504
coordinator epoch 0 of another producer: outcomes {t-0=NONE}, next offset 505
offsets that a consumer sees: [0, 501]
EXPECTED
echo "as stated"
