"""Registries of schemas: a stub of the calls that are used, which a test lets fail, and Apicurio's own, fetched once."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from tests.tools.fetched import fetch_archive
from tests.tools.ports import free_port

#: The last version that a Java 17 runs.
APICURIO: Final = ("io.apicurio", "apicurio-registry-app", "2.6.13.Final")


class Stub:
    """A registry in this process.

    Attributes:
        schemas: by id or GUID, as the registry answers.
        subjects: by subject and version.
        asked: the paths that were asked for.
        user: the header that is expected; None for none.
        answer: the status and the body of every answer, as of a registry that fails; None for the right ones.
    """

    def __init__(self, port: int = 0) -> None:
        self.schemas: dict[str, dict[str, Any]] = {}
        self.subjects: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.user: str | None = None
        self.answer: tuple[int, bytes] | None = None
        self._port = port
        self.start()

    def start(self) -> None:
        """Listen, where it listened before."""
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub.asked.append(self.path)
                status, body = stub._answer(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def add(self, number: int, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> None:
        """Have a schema under an id."""
        # Of Avro the type is not said.
        told = {"schema": schema} if kind == "AVRO" else {"schema": schema, "schemaType": kind}
        self.schemas[f"ids/{number}"] = told | ({"references": references} if references else {})

    def _answer(self, path: str, user: str | None) -> tuple[int, bytes]:
        if self.answer is not None:
            return self.answer
        if self.user is not None and user != self.user:
            return 401, b'{"error_code": 401, "message": "Unauthorized"}'
        if path == "/schemas/types":
            return 200, b'["JSON", "PROTOBUF", "AVRO"]'
        steps = path.split("/")
        if steps[1] == "schemas" and (found := self.schemas.get("/".join(steps[2:]))) is not None:
            return 200, json.dumps(found).encode()
        if steps[1] == "subjects" and (found := self.subjects.get((unquote(steps[2]), steps[4]))) is not None:
            return 200, json.dumps(found).encode()
        return 404, b'{"error_code": 40403, "message": "Schema not found"}'


@contextmanager
def apicurio(folder: Path) -> Iterator[str]:
    """Run Apicurio's registry; give the URL of its compatible API. Raises NotThere."""
    archive = fetch_archive(*APICURIO)
    home = folder / "apicurio"
    with tarfile.open(archive) as file:
        file.extractall(home, filter="data")
    (jar,) = home.glob("*-runner.jar")
    port = free_port()
    command = ["java", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1"]
    with open(folder / "apicurio.log", "wb") as log:
        process = subprocess.Popen(
            [*command, f"-Dquarkus.http.port={port}", "-jar", str(jar)],
            stdout=log,
            stderr=log,
            cwd=home,
            env=_without_java_options(),
        )
    try:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        _until(lambda: process.poll() is not None or _get(f"{url}/schemas/types") is not None)
        assert process.poll() is None, (folder / "apicurio.log").read_text()[-2000:]
        yield url
    finally:
        process.kill()
        process.wait()


def register(url: str, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
    """Register a schema; return its id."""
    body = {"schema": schema, "schemaType": kind, "references": references or []}
    request = urllib.request.Request(
        f"{url}/subjects/{subject}/versions",
        json.dumps(body).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return int(json.load(answer)["id"])


def _without_java_options() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")}


def _get(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            found: bytes = answer.read()
            return found
    except OSError:
        return None


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)
