"""Part of Kubernetes' API that Spark's driver asks for, over HTTP; its pods are processes of this machine.

A pod of an executor is what the worker's image would start: `ureplicator` with the arguments of the
container, and no other variables than the container's. It mounts nothing, and its address is 127.0.0.1.

There are no watches: the driver must ask again and again (`POLLING`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ureplicator_testkit.servers.processes import Process
from ureplicator_testkit.servers.served import Served

POLLING: Mapping[str, str] = {
    "spark.kubernetes.executor.enableApiWatcher": "false",
    "spark.kubernetes.executor.apiPollingInterval": "500ms",
}
ADDRESS = "127.0.0.1"
KEPT = ("PATH", "JAVA_HOME")
"""Variables that the image has, too."""


class KubernetesApi(Served):
    """The API of one namespace. `folder` gets the logs of pods."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self.objects: dict[str, dict[str, Any]] = {}
        """Path of each object -> the object."""
        self.processes: dict[str, Process] = {}
        """Path of each pod that was started -> its process."""
        self.unknown: list[str] = []
        """Requests that were answered with 404 or 405."""
        super().__init__(ThreadingHTTPServer((ADDRESS, 0), _handler(self)))

    @property
    def master(self) -> str:
        return f"k8s://http://{ADDRESS}:{self.port}"

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for process in self.processes.values():
            process.kill_tree()

    # Requests.

    def get(self, path: str) -> dict[str, Any] | None:
        with self._lock:
            if path.rpartition("/")[2] in (
                "pods",
                "configmaps",
                "persistentvolumeclaims",
                "services",
            ):
                found = [self._shown(name) for name in self.objects if _folder(name) == path]
                return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": found}
            return self._shown(path) if path in self.objects else None

    def post(self, folder: str, body: dict[str, Any]) -> dict[str, Any]:
        path = f"{folder}/{body['metadata']['name']}"
        with self._lock:
            body["metadata"] |= {"uid": path, "resourceVersion": "1"}
            self.objects[path] = body
            if folder.endswith("/pods"):
                self.processes[path] = self._start(body)
            return self._shown(path)

    def delete(self, path: str) -> dict[str, Any]:
        with self._lock:
            for gone in [name for name in self.objects if path in (name, _folder(name))]:
                del self.objects[gone]
                if gone in self.processes:
                    self.processes[gone].kill_tree()
        return {"apiVersion": "v1", "kind": "Status", "status": "Success"}

    # Pods.

    def _start(self, pod: Mapping[str, Any]) -> Process:
        (container,) = pod["spec"]["containers"]
        name = pod["metadata"]["name"]
        fields = {"status.podIP": ADDRESS, "metadata.name": name}
        env = {
            variable["name"]: variable["value"]
            if "value" in variable
            else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            for variable in container["env"]
            if variable.keys() & {"value", "valueFrom"}
        }
        env |= {"SPARK_LOCAL_DIRS": str(self._folder / name), "SPARK_LOCAL_IP": ADDRESS}
        foreign = [
            f"--unset={variable}" for variable in os.environ if variable not in (*env, *KEPT)
        ]
        entry = Path(sys.executable).with_name("ureplicator")
        command = ["env", *foreign, entry, *container["args"]]
        return Process(name, command, log=self._folder / f"{name}.log", env=env)

    def _shown(self, path: str) -> dict[str, Any]:
        process = self.processes.get(path)
        if process is None:
            return self.objects[path]
        code = process.returncode
        state = {"running": {}} if code is None else {"terminated": {"exitCode": abs(code)}}
        phase = "Running" if code is None else "Failed" if code else "Succeeded"
        container = {"name": "spark-kubernetes-executor", "state": state}
        status = {"phase": phase, "podIP": ADDRESS, "containerStatuses": [container]}
        return {**self.objects[path], "status": status}


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _handler(api: KubernetesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._respond(200, api.get(self._path()))

        def do_POST(self) -> None:
            self._respond(201, api.post(self._path(), self._body()))

        def do_DELETE(self) -> None:
            self._body()
            self._respond(200, api.delete(self._path()))

        def do_PATCH(self) -> None:
            self._body()
            self._respond(405, None)

        do_PUT = do_PATCH

        def _path(self) -> str:
            return urlsplit(self.path).path

        def _body(self) -> dict[str, Any]:
            length = int(self.headers.get("Content-Length") or 0)
            read: dict[str, Any] = json.loads(self.rfile.read(length) or b"{}")
            return read

        def _respond(self, code: int, body: dict[str, Any] | None) -> None:
            if body is None:
                api.unknown.append(f"{self.command} {self.path}")
                code, body = 404, {"apiVersion": "v1", "kind": "Status", "code": 404}
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    return Handler
