#!/usr/bin/env bash
# Kafka's own Java reader reads the whole payload of a batch whose compressed data is a concatenation of gzip members,
# xerial snappy streams or zstd frames, but only the first frame of lz4: the rest is ignored, without an error of the
# codec. The LZ4 frame format allows frames to be concatenated, and the `lz4` package reads them all. So one rule for
# all codecs ("decompress until the payload ends") reads records that Kafka's consumers do not, or refuses data that
# they read.
#
# Seen with org.apache.kafka:kafka-clients 4.1.0 (lz4-java as it depends on it) and lz4 4.4.5 of Python:
#   kafka-clients gzip: read 22 of 22 bytes
#   kafka-clients snappy: read 22 of 22 bytes
#   kafka-clients lz4: read 11 of 22 bytes
#   kafka-clients zstd: read 22 of 22 bytes
#   python lz4: read 22 of 22 bytes
#
# Needs Maven, Java 17 or later, and Python 3. Fails if any of this changes.
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
      <groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>4.1.0</version>
    </dependency>
  </dependencies>
</project>
POM
cat >Frames.java <<'JAVA'
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

class Frames {
    public static void main(String[] arguments) throws Exception {
        for (var type : CompressionType.values()) {
            if (type == CompressionType.NONE) continue;
            var codec = Compression.of(type).build();
            var both = ByteBuffer.allocate(4096);
            for (var part : new String[] {"first part.", "other part."}) {
                var one = new ByteBufferOutputStream(4096);
                try (OutputStream out = codec.wrapForOutput(one, (byte) 2)) {
                    out.write(part.getBytes());
                }
                one.buffer().flip();
                both.put(one.buffer());
            }
            both.flip();
            if (type == CompressionType.LZ4) {
                Files.write(Path.of("both.lz4"), java.util.Arrays.copyOf(both.array(), both.limit()));
            }
            try (var in = codec.wrapForInput(both, (byte) 2, BufferSupplier.NO_CACHING)) {
                System.out.println("kafka-clients " + type.name + ": read " + in.readAllBytes().length + " of 22 bytes");
            }
        }
    }
}
JAVA
mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >mvn.log 2>&1 || { tail -n 5 mvn.log; exit 2; }
python3 -m venv venv && venv/bin/pip install -q --disable-pip-version-check lz4==4.4.5

{
  java -cp 'jars/*' Frames.java 2>java.log
  venv/bin/python -c 'import lz4.frame, pathlib
print("python lz4: read", len(lz4.frame.open("both.lz4").read()), "of 22 bytes")'
} | tee seen.txt

diff - seen.txt <<'EXPECTED'
kafka-clients gzip: read 22 of 22 bytes
kafka-clients snappy: read 22 of 22 bytes
kafka-clients lz4: read 11 of 22 bytes
kafka-clients zstd: read 22 of 22 bytes
python lz4: read 22 of 22 bytes
EXPECTED
echo "as stated"
