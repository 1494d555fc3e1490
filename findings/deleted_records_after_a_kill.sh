#!/usr/bin/env bash
# Records that were deleted by DeleteRecords are there again after the broker was killed: the request is answered as a
# success, and consumers begin behind them, but where a log begins is on disk only when the broker's next checkpoint
# of log starts is written, each log.flush.start.offset.checkpoint.interval.ms (a minute by default), or at a clean
# end. A broker that is killed before, and is the only replica, begins again at the segment's first offset. Nothing
# tells the client. Positions of consumer groups, which lie in a log, outlive the same kill.
#
# Seen with org.apache.kafka:kafka_2.13:4.1.0, one broker of KRaft on 127.0.0.1, three records in the log (also with
# 3.9.2 and 4.3.0):
#   deleted before 2: earliest 2
#   clean end: earliest 2
#   deleted before 2: earliest 2
#   killed at once: earliest 0
#   deleted before 2: earliest 2
#   killed behind a checkpoint: earliest 2
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
cat >Deleted.java <<'JAVA'
import java.io.*;
import java.net.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

class Deleted {
    static final TopicPartition LOG = new TopicPartition("log", 0);
    static int port;
    static Process broker;

    public static void main(String[] arguments) throws Exception {
        port = freePort();
        format();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> broker.destroyForcibly()));
        start(60_000);
        fill();
        delete();
        broker.destroy();
        start(60_000);
        show("clean end");
        fill();
        delete();
        kill();
        start(1_000);
        show("killed at once");
        delete();
        var checkpoint = Path.of("data", "log-start-offset-checkpoint");
        while (!Files.readString(checkpoint).contains("log 0 2")) Thread.sleep(50);
        kill();
        start(60_000);
        show("killed behind a checkpoint");
    }

    interface Question<T> { T ask(Admin admin) throws Exception; }

    static <T> T asked(Question<T> question) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", "127.0.0.1:" + port))) {
            return question.ask(admin);
        }
    }

    /** A new topic with three records. */
    static void fill() throws Exception {
        asked(admin -> {
            if (admin.listTopics().names().get().contains("log")) {
                admin.deleteTopics(List.of("log")).all().get();
                while (admin.listTopics().names().get().contains("log")) Thread.sleep(50);
            }
            return admin.createTopics(List.of(new NewTopic("log", 1, (short) 1))).all().get();
        });
        var settings = Map.<String, Object>of("bootstrap.servers", "127.0.0.1:" + port);
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(settings, bytes, bytes)) {
            for (int i = 0; i < 3; i++) producer.send(new ProducerRecord<>("log", 0, null, new byte[1])).get();
        }
    }

    static void delete() throws Exception {
        asked(admin -> admin.deleteRecords(Map.of(LOG, RecordsToDelete.beforeOffset(2))).all().get());
        show("deleted before 2");
    }

    static void show(String when) throws Exception {
        long first = asked(admin ->
            admin.listOffsets(Map.of(LOG, OffsetSpec.earliest())).partitionResult(LOG).get().offset());
        System.out.println(when + ": earliest " + first);
    }

    static void kill() throws Exception {
        broker.destroyForcibly().waitFor();
    }

    /** Start the broker, and wait until it serves. */
    static void start(int checkpointMs) throws Exception {
        if (broker != null) broker.waitFor();
        broker = new ProcessBuilder("java", "-Xmx256m", "-cp", "jars/*", "kafka.Kafka", "server.properties",
            "--override", "log.flush.start.offset.checkpoint.interval.ms=" + checkpointMs)
            .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.appendTo(new File("broker.log"))).start();
        for (long end = System.currentTimeMillis() + 60_000; ; ) {
            try (var socket = new Socket("127.0.0.1", port)) {
                break;
            } catch (IOException refused) {
                if (System.currentTimeMillis() > end || !broker.isAlive()) throw refused;
                Thread.sleep(100);
            }
        }
        asked(admin -> admin.describeCluster().nodes().get());
    }

    static void format() throws IOException {
        var controller = "127.0.0.1:" + freePort();
        var properties = new Properties();
        properties.putAll(Map.of(
            "node.id", "1", "process.roles", "broker,controller", "log.dirs", "data",
            "listeners", "PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://" + controller,
            "advertised.listeners", "PLAINTEXT://127.0.0.1:" + port,
            "controller.listener.names", "CONTROLLER", "controller.quorum.voters", "1@" + controller,
            "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "offsets.topic.replication.factor", "1"));
        try (var file = new FileWriter("server.properties")) {
            properties.store(file, null);
        }
        kafka.tools.StorageTool.execute(
            new String[] {"format", "-t", Uuid.randomUuid().toString(), "-c", "server.properties"},
            new PrintStream(OutputStream.nullOutputStream()));
    }

    static int freePort() throws IOException {
        try (var socket = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
            return socket.getLocalPort();
        }
    }
}
JAVA
mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >mvn.log 2>&1 || { tail -n 5 mvn.log; exit 2; }

timeout 300 java -Xmx200m -cp 'jars/*' Deleted.java 2>java.log | tee seen.txt || { tail -n 5 java.log; exit 2; }

diff - seen.txt <<'EXPECTED'
deleted before 2: earliest 2
clean end: earliest 2
deleted before 2: earliest 2
killed at once: earliest 0
deleted before 2: earliest 2
killed behind a checkpoint: earliest 2
EXPECTED
echo "as stated"
