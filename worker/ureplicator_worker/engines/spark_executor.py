"""The process of an executor in a pod of Kubernetes.

Spark starts each pod from the image that it is given, with the one argument `executor`, and puts the rest
into variables (`BasicExecutorFeatureStep` of Spark). Images of Spark have a script that makes a command of
them, `entrypoint.sh`; pyspark comes without it. The worker's image has the command `ureplicator executor`.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from ureplicator_common.errors import PermanentError
from ureplicator_worker.engines import jvm

MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_MASTER = "-Dspark.master=k8s://"
"""Spark reads `spark.authenticate.secret.file` only where its master is one of Kubernetes
(`SecurityManager.secretKeyFromFile`), and tells executors their master after they have authenticated."""
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_MEMORY = "SPARK_EXECUTOR_MEMORY"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def run(environ: Mapping[str, str]) -> None:
    """Become the executor that Spark describes in the variables. Raises PermanentError."""
    home = _spark_home()
    if not jvm.has_user_name():
        raise PermanentError(
            f"user id {os.getuid()} has no name, and executors need one: have their pods run as a user of the"
            " image, such as 10001 (securityContext.runAsUser in spark.kubernetes.executor.podTemplateFile)"
        )
    command = executor_command(environ, java=jvm.find_java(), home=home)
    # Executors write files of the application into their current folder.
    os.chdir(tempfile.gettempdir())
    os.execve(command[0], command, {**environ, "SPARK_HOME": str(home)})  # noqa: S606


def executor_command(environ: Mapping[str, str], *, java: str, home: Path) -> list[str]:
    """Command of Spark's own images for these variables, with the kind of master. Raises PermanentError."""
    missing = [name for name in (*_ARGUMENTS.values(), _MEMORY) if not environ.get(name)]
    if missing:
        raise PermanentError(
            f"{', '.join(missing)}: not set. Spark itself starts executors, in the pods of a worker whose"
            " spark.master is k8s://...: start `ureplicator worker`"
        )
    memory = environ[_MEMORY]
    return [
        java,
        *_java_options(environ),
        _MASTER,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        _class_path(environ, home),
        MAIN,
        *(part for option, name in _ARGUMENTS.items() for part in (option, environ[name])),
    ]


def _java_options(environ: Mapping[str, str]) -> list[str]:
    numbers = {int(match[1]): name for name in environ if (match := _JAVA_OPTION.fullmatch(name))}
    return [environ[numbers[number]] for number in sorted(numbers)]


def _class_path(environ: Mapping[str, str], home: Path) -> str:
    """Class path with the pod's own first: its configuration, and `spark.executor.extraClassPath`."""
    own = [environ.get("SPARK_CONF_DIR", ""), environ.get("SPARK_CLASSPATH", "")]
    return os.pathsep.join([*filter(None, own), f"{home}/jars/*"])


def _spark_home() -> Path:
    """Folder of pyspark, which is a whole Spark. Raises PermanentError."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise PermanentError('pyspark is not installed: install "ureplicator[worker]"')
    return Path(pyspark.origin).parent
