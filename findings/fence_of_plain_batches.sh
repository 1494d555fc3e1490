#!/usr/bin/env bash
# The producer id and epoch of a transactional id also serve for plain idempotent batches, outside any transaction. But
# a second InitProducerId with that id, which fences the first owner's transactions, does not fence its plain batches:
# the partition's leader learns a new epoch only from what is written to the partition. AddPartitionsToTxn and EndTxn
# without any data between them are enough for it: the coordinator then writes exactly one control record, with the new
# epoch, which takes one offset, and the old epoch is refused from there on, for plain batches too.
#
# Seen with org.apache.kafka:kafka_2.13:4.1.0, one broker of KRaft on 127.0.0.1 (also with 4.3.0, where the classes of
# records lie in another package):
#   first owner, plain batch: offset 0
#   second owner: same producer id true, epoch 1 after 0
#   first owner, plain batch: offset 1
#   second owner, AddPartitionsToTxn: NONE, EndTxn(abort): NONE
#   first owner, plain batch: INVALID_PRODUCER_EPOCH
#   second owner, plain batch: offset 3
#   log, offsets 0 to 0: data of epoch 0
#   log, offsets 1 to 1: data of epoch 0
#   log, offsets 2 to 2: control record of epoch 1
#   log, offsets 3 to 3: data of epoch 1
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
cat >Fence.java <<'JAVA'
import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.util.*;
import kafka.server.*;
import kafka.tools.StorageTool;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.requests.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;

class Fence {
    static final String ID = "owners-of-t";
    static final TopicPartition PARTITION = new TopicPartition("t", 0);
    static int port;

    public static void main(String[] arguments) throws Exception {
        port = freePort();
        var server = start(format());
        try (var admin = Admin.create(Map.of("bootstrap.servers", "127.0.0.1:" + port))) {
            admin.createTopics(List.of(new NewTopic("t", 1, (short) 1))).all().get();
            var first = newOwner(admin);
            System.out.println("first owner, plain batch: " + send(first, 0));
            var second = newOwner(admin);
            System.out.println("second owner: same producer id " + (second.producerId() == first.producerId())
                + ", epoch " + second.producerEpoch() + " after " + first.producerEpoch());
            System.out.println("first owner, plain batch: " + send(first, 1));
            System.out.println("second owner, AddPartitionsToTxn: " + addPartition(second)
                + ", EndTxn(abort): " + abort(second));
            awaitAborted(admin);
            System.out.println("first owner, plain batch: " + send(first, 2));
            System.out.println("second owner, plain batch: " + send(second, 0));
            printLog();
        } finally {
            stop(server);
        }
    }

    /** InitProducerId by Kafka's own client; what the coordinator then holds. */
    static TransactionDescription newOwner(Admin admin) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", "127.0.0.1:" + port, "transactional.id", ID);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
        }
        return admin.describeTransactions(List.of(ID)).description(ID).get();
    }

    static String send(TransactionDescription owner, int sequence) throws Exception {
        return produce("t", owner.producerId(), owner.producerEpoch(), sequence, System.currentTimeMillis());
    }

    static Errors addPartition(TransactionDescription owner) throws Exception {
        var request = AddPartitionsToTxnRequest.Builder.forClient(
            ID, owner.producerId(), (short) owner.producerEpoch(), List.of(PARTITION)).build((short) 3);
        for (int i = 0; ; i++) {
            var topics = ((AddPartitionsToTxnResponse) call(request)).data().resultsByTopicV3AndBelow();
            var result = topics.iterator().next().resultsByPartition().iterator().next();
            var error = Errors.forCode(result.partitionErrorCode());
            if (!again(error, i)) return error;
        }
    }

    static Errors abort(TransactionDescription owner) throws Exception {
        var data = new EndTxnRequestData().setTransactionalId(ID).setProducerId(owner.producerId())
            .setProducerEpoch((short) owner.producerEpoch()).setCommitted(false);
        for (int i = 0; ; i++) {
            var error = ((EndTxnResponse) call(new EndTxnRequest.Builder(data, false).build((short) 3))).error();
            if (!again(error, i)) return error;
        }
    }

    /** Wait, up to a minute, until the coordinator has written all markers of the transaction. */
    static void awaitAborted(Admin admin) throws Exception {
        for (int i = 0; i < 600; i++) {
            var found = admin.describeTransactions(List.of(ID)).description(ID).get();
            if (found.state() == TransactionState.COMPLETE_ABORT) return;
            Thread.sleep(100);
        }
    }

    static void printLog() throws IOException {
        try (var log = FileRecords.open(new File("data/t-0/00000000000000000000.log"))) {
            for (var batch : log.batches()) {
                System.out.println("log, offsets " + batch.baseOffset() + " to " + batch.lastOffset() + ": "
                    + (batch.isControlBatch() ? "control record" : "data") + " of epoch " + batch.producerEpoch());
            }
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

timeout 300 java -Xmx320m -cp 'jars/*' Fence.java 2>java.log | tee seen.txt || { tail -n 5 java.log; exit 2; }

diff - seen.txt <<'EXPECTED'
first owner, plain batch: offset 0
second owner: same producer id true, epoch 1 after 0
first owner, plain batch: offset 1
second owner, AddPartitionsToTxn: NONE, EndTxn(abort): NONE
first owner, plain batch: INVALID_PRODUCER_EPOCH
second owner, plain batch: offset 3
log, offsets 0 to 0: data of epoch 0
log, offsets 1 to 1: data of epoch 0
log, offsets 2 to 2: control record of epoch 1
log, offsets 3 to 3: data of epoch 1
EXPECTED
echo "as stated"
