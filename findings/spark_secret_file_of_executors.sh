#!/usr/bin/env bash
# Spark on Kubernetes lets a secret be mounted into pods (`spark.authenticate.secret.file`), so that it is in no variable
# of them. The driver reads the file. An executor does not, though Spark gives it the property: it reads the file only
# if `spark.master` is one of Kubernetes, and the master is not among the properties that a pod is given. It would learn
# it from the driver, to which it must authenticate first. So pods end with "A secret key must be specified", which
# names another property. With the option `-Dspark.master=k8s://`, which an entry point of one's own can add, it works.
#
# Seen with org.apache.spark:spark-kubernetes_2.13:4.1.1 (also with 4.3.0, from pyspark): the pod is rendered by the
# classes that the driver uses, and the secret is read by the class that an executor uses.
#   given to the executor: [spark.authenticate, spark.authenticate.secret.file]
#   driver's secret: c2VjcmV0
#   executor's secret: A secret key must be specified via the spark.authenticate.secret config
#   executor's secret with spark.master: c2VjcmV0
#
# Needs Maven and Java 17 or later; fetches 250 MB. Fails if any of this changes.
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
      <groupId>org.apache.spark</groupId><artifactId>spark-kubernetes_2.13</artifactId><version>4.1.1</version>
    </dependency>
  </dependencies>
</project>
POM
cat >Pods.java <<'JAVA'
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.nio.file.*;
import java.util.*;
import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.deploy.k8s.KubernetesConf;
import org.apache.spark.internal.config.package$;
import org.apache.spark.resource.ResourceProfile$;
import org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder;
import scala.Option;

class Pods {
    public static void main(String[] arguments) throws Exception {
        var file = Path.of("secret");
        Files.writeString(file, "secret");
        var conf = new SparkConf(false)
            .set("spark.master", "k8s://https://kubernetes.default.svc")
            .set("spark.app.name", "a").set("spark.driver.host", "10.1.2.3").set("spark.driver.port", "9012")
            .set("spark.kubernetes.container.image", "image")
            .set("spark.authenticate", "true")
            .set("spark.authenticate.secret.file", file.toAbsolutePath().toString());
        var driver = new SecurityManager(conf, Option.empty(), package$.MODULE$.AUTH_SECRET_FILE_DRIVER());
        var options = options(conf, driver);
        System.out.println("given to the executor: " + options.keySet());
        var executor = new SparkConf(false);
        options.forEach(executor::set);
        System.out.println("driver's secret: " + secret(driver));
        System.out.println("executor's secret: " + secret(of(executor)));
        executor.set("spark.master", "k8s://");
        System.out.println("executor's secret with spark.master: " + secret(of(executor)));
    }

    /** What Spark's entrypoint.sh makes options of Java of: the properties that an executor starts with. */
    static Map<String, String> options(SparkConf conf, SecurityManager driver) {
        var pod = new KubernetesExecutorBuilder().buildFromFeatures(
            KubernetesConf.createExecutorConf(conf, "1", "app-1", Option.empty(), 0), driver,
            new KubernetesClientBuilder().build(), ResourceProfile$.MODULE$.getOrCreateDefaultProfile(conf)).pod();
        var found = new TreeMap<String, String>();
        for (var each : pod.container().getEnv()) {
            if (each.getName().startsWith("SPARK_JAVA_OPT_") && each.getValue().startsWith("-Dspark.auth")) {
                var parts = each.getValue().substring(2).split("=", 2);
                found.put(parts[0], parts[1]);
            }
            if (each.getName().equals("_SPARK_AUTH_SECRET")) found.put(each.getName(), "set");
        }
        return found;
    }

    /** As the executor makes it before it asks the driver for all other properties. */
    static SecurityManager of(SparkConf conf) {
        return new SecurityManager(conf, Option.empty(), package$.MODULE$.AUTH_SECRET_FILE());
    }

    static String secret(SecurityManager manager) {
        try {
            return manager.getSecretKey();
        } catch (IllegalArgumentException error) {
            return error.getMessage();
        }
    }
}
JAVA
mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >mvn.log 2>&1 || { tail -n 5 mvn.log; exit 2; }

java --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED \
  -cp 'jars/*' Pods.java 2>java.log | tee seen.txt

diff - seen.txt <<'EXPECTED'
given to the executor: [spark.authenticate, spark.authenticate.secret.file]
driver's secret: c2VjcmV0
executor's secret: A secret key must be specified via the spark.authenticate.secret config
executor's secret with spark.master: c2VjcmV0
EXPECTED
echo "as stated"
