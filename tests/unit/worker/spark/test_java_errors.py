# ruff: noqa: E501  # real texts
"""Texts of exceptions as py4j, Spark and the JVM write them, each in the one line that tells what failed."""

from __future__ import annotations

import pytest

from ureplicator_worker.auditor.outcome import reason_of
from ureplicator_worker.engines import jvm
from ureplicator_worker.engines.java_errors import cause_of, unregistered
from ureplicator_worker.sql.session import one_line

MEMORY = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY.SYSTEM_MEMORY] Insufficient driver memory: System memory 259522560 must be at least 471859200.
Please increase heap size using the --driver-memory option or "spark.driver.memory" in Spark configuration. SQLSTATE: F0000
\tat org.apache.spark.memory.UnifiedMemoryManager$.getMaxMemory(UnifiedMemoryManager.scala:478)
\tat org.apache.spark.memory.UnifiedMemoryManager$.apply(UnifiedMemoryManager.scala:454)
"""
MEMORY_LINE = (
    "SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY.SYSTEM_MEMORY] Insufficient driver memory:"
    " System memory 259522560 must be at least 471859200. Please increase heap size using the"
    ' --driver-memory option or "spark.driver.memory" in Spark configuration. SQLSTATE: F0000'
)
HOST = """WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" java.lang.ExceptionInInitializerError
\tat org.apache.spark.internal.config.package$.<clinit>(package.scala)
\tat org.apache.spark.deploy.SparkSubmitArguments.main(SparkSubmit.scala)
Caused by: java.net.UnknownHostException: nosuchhost: nosuchhost: Name or service not known
\tat java.base/java.net.InetAddress.getLocalHost(InetAddress.java:1671)
\t... 24 more
Caused by: java.net.UnknownHostException: nosuchhost: Name or service not known
\t... 29 more
"""
IVY = """Exception in thread "main" java.lang.IllegalArgumentException: basedir must be absolute: ?/.ivy2.5.2/local
\tat org.apache.ivy.util.Checks.checkAbsolute(Checks.java:48)
"""
KUBERNETES = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.
\tat io.fabric8.kubernetes.client.KubernetesClientException.launderThrowable(KubernetesClientException.java:129)
Caused by: java.io.IOException: Connection refused: /127.0.0.1:1
\tat io.fabric8.kubernetes.client.dsl.internal.OperationSupport.waitForResult(OperationSupport.java:504)
"""
MASTER = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
Caused by: java.io.IOException: Failed to connect to /127.0.0.1:1
\tat org.apache.spark.network.client.TransportClientFactory.createClient(TransportClientFactory.java:294)
Caused by: io.netty.channel.AbstractChannel$AnnotatedConnectException: Connection refused: /127.0.0.1:1
Caused by: java.net.ConnectException: Connection refused
"""
WRAPPED = """: java.lang.RuntimeException: java.lang.ClassNotFoundException: no.such.Plugin
\tat a.b.C.d(C.java:1)
Caused by: java.lang.ClassNotFoundException: no.such.Plugin
\t... 3 more
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (MEMORY, MEMORY_LINE),
        (HOST, "UnknownHostException: nosuchhost: nosuchhost: Name or service not known"),
        (IVY, "IllegalArgumentException: basedir must be absolute: ?/.ivy2.5.2/local"),
        (MASTER, "IOException: Failed to connect to /127.0.0.1:1"),
        (WRAPPED, "RuntimeException: java.lang.ClassNotFoundException: no.such.Plugin"),
        (": java.lang.StackOverflowError\n\tat a.b.C.d(C.java:1)\n", "StackOverflowError"),
        (KUBERNETES, "IOException: Connection refused: /127.0.0.1:1"),
        ("An error occurred", ""),
        ("", ""),
    ],
)
def test_the_first_exception_that_names_something_is_the_cause(text: str, line: str) -> None:
    assert cause_of(text) == line


def test_no_reason_is_the_first_line_of_py4j() -> None:
    """A worker's start and a copier's task, an audit, and a query."""
    assert jvm.brief(Exception(MEMORY)) == MEMORY_LINE[:300]
    assert reason_of(Exception(MEMORY)).startswith(MEMORY_LINE[:150])
    assert one_line(Exception(MASTER)) == "IOException: Failed to connect to /127.0.0.1:1"


def test_a_jvm_that_ended_before_it_served_told_why() -> None:
    assert jvm.written_cause(HOST.splitlines()).startswith("UnknownHostException: nosuchhost")
    ends = [
        "Error: Could not create the Java Virtual Machine.",
        "Error: A fatal exception has occurred. Program will exit.",
    ]
    assert jvm.written_cause(["Unrecognized option: -x", *ends]) == "Unrecognized option: -x"
    heap = ["Invalid maximum heap size: -Xmx9999999g", "The specified size exceeds the maximum."]
    assert jvm.written_cause(["a line", *heap, *ends]) == ": ".join(heap)
    assert jvm.written_cause(["", heap[0], *ends]) == heap[0]
    assert jvm.written_cause(ends) == ends[0]
    unborn = ["Error occurred during initialization of VM", "Could not reserve enough space"]
    assert jvm.written_cause(unborn) == ": ".join(unborn)
    assert jvm.written_cause(["a line"]) == ""


SPARK_LOG = (
    "2026-11-29T10:18:31.495 WARN StandaloneSchedulerBackend: Application ID is not initialized yet.\n"
    "2026-11-29T10:18:31.496 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All"
    " masters are unresponsive! Giving up.\n\n"
)


@pytest.mark.parametrize(
    ("application_id", "log", "said"),
    [
        ("spark-application-1795947511496", "", "the application: "),
        ("spark-application-1", SPARK_LOG, "(All masters are unresponsive! Giving up.): "),
        ("", SPARK_LOG, "(All masters are unresponsive! Giving up.): "),
    ],
)
def test_a_master_that_has_not_taken_the_application_is_named(
    application_id: str, log: str, said: str
) -> None:
    """Spark says it in its log alone; the context fails anywhere, or goes on until it is stopped."""
    reason = unregistered("spark://127.0.0.1:1", application_id, log)
    assert reason.startswith("no master of spark://127.0.0.1:1 has taken the application")
    assert said + "start one, correct spark.master, or give both the same secret" in reason


def test_an_application_that_a_master_has_taken() -> None:
    assert unregistered("spark://m:7077", "app-20261129101831-0001", "") == ""
    assert unregistered("spark://m:7077", "", "") == ""
    assert unregistered("local[2]", "spark-application-1", SPARK_LOG) == ""


def test_the_advice_of_spark_about_ports_is_left_out() -> None:
    text = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": java.net.BindException: bind(..) failed with error(-98): Address already in use: Service"
        " 'sparkDriver' failed after 0 retries (starting from 18765)! Consider explicitly setting the"
        " appropriate port for the service 'sparkDriver' (for example spark.ui.port for SparkUI).\n"
        "\tat java.base/sun.nio.ch.Net.bind0(Native Method)\n"
    )
    assert jvm.brief(Exception(text)).endswith("failed after 0 retries (starting from 18765)!")
