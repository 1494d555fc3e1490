# ruff: noqa: E501  # real texts
"""Texts of exceptions as py4j, Spark and the JVM write them, each in the one line that tells what failed."""

from __future__ import annotations

import pytest

from ureplicator_worker.auditor.outcome import reason_of
from ureplicator_worker.engines import jvm
from ureplicator_worker.engines.java_errors import cause_of
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
    refused = ["Invalid maximum heap size: -Xmx9x", "Error: Could not create the JVM."]
    assert jvm.written_cause(refused) == "Error: Could not create the JVM."
    assert jvm.written_cause(["a line"]) == ""
