"""SkyPilot's API server on loopback, as 0.14.1 behaves: a request is answered with its id at once, `/api/get` waits for
its outcome and answers 500 if it failed. No cloud is behind it: tests say what becomes of a launch."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "sky_a-token"


@dataclass
class Asked:
    name: str
    cluster: str | None
    body: dict[str, Any]
    status: str = "PENDING"
    value: Any = None
    error: tuple[str, str] | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    at: float = field(default_factory=time.time)


class SkyPilotServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.asked: list[Asked] = []
        self.clusters: dict[str, dict[str, Any]] = {}
        self.history: set[str] = set()
        self.changed = threading.Condition()
        self.downs_finish = True

    def launches(self) -> list[Asked]:
        return [each for each in self.asked if each.name == "sky.launch"]

    def finish(self, asked: Asked, status: str, *, value: Any = None, error: tuple[str, str] | None = None) -> None:
        with self.changed:
            asked.status, asked.value, asked.error = status, value, error
            self.changed.notify_all()

    def has(self, cluster: str, status: str, **more: Any) -> None:
        self.clusters[cluster] = {"name": cluster, "status": status, **more}
        self.history.add(cluster)

    def take(self, asked: Asked) -> None:
        self.asked.append(asked)
        if asked.name == "sky.status":
            wanted = asked.body["cluster_names"]
            self.finish(asked, "SUCCEEDED", value=[self.clusters[each] for each in wanted if each in self.clusters])
        elif asked.name == "sky.cost_report":
            known = [each for each in asked.body["cluster_names"] if each in self.history]
            self.finish(asked, "SUCCEEDED", value=[{"name": each, "resources": "a pickled object"} for each in known])
        elif asked.name == "sky.down":
            self._down(asked)
        elif asked.name == "sky.api_cancel":
            for each in self.asked:
                if each.id in asked.body["request_ids"]:
                    self.finish(each, "CANCELLED")
            self.finish(asked, "SUCCEEDED", value=asked.body["request_ids"])

    def _down(self, asked: Asked) -> None:
        cluster = str(asked.cluster)
        if cluster not in self.clusters:
            self.finish(asked, "FAILED", error=("ClusterDoesNotExist", f"Cluster {cluster!r} does not exist."))
        elif self.downs_finish:
            del self.clusters[cluster]
            self.finish(asked, "SUCCEEDED")
        else:
            asked.status = "RUNNING"


@contextmanager
def running() -> Iterator[SkyPilotServer]:
    server = SkyPilotServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        for each in server.asked:  # whoever still waits
            if each.status not in ENDED:
                server.finish(each, "CANCELLED")
        server.shutdown()
        thread.join()
        server.server_close()


ENDED = {"SUCCEEDED", "FAILED", "CANCELLED"}
NAMES = {
    "/status": "sky.status",
    "/launch": "sky.launch",
    "/down": "sky.down",
    "/api/cancel": "sky.api_cancel",
    "/cost_report": "sky.cost_report",
}


class _Handler(BaseHTTPRequestHandler):
    server: SkyPilotServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._stranger():
            return
        name = NAMES[urlsplit(self.path).path]
        if name == "sky.launch" and not isinstance(body.get("task"), str):
            detail = [{"type": "string_type", "loc": ["body", "task"], "msg": "Not a string", "input": body}]
            return self._json(422, {"detail": detail})
        asked = Asked(name, body.get("cluster_name"), body)
        self.server.take(asked)
        self._json(200, None, {"X-Skypilot-Request-ID": asked.id})

    def do_GET(self) -> None:
        if self._stranger():
            return
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path == "/api/status":
            mine = [each for each in self.server.asked if each.cluster == query["cluster_name"][0]]
            return self._json(200, [self._payload(each, body="null") for each in mine])
        asked = next((each for each in self.server.asked if each.id == query["request_id"][0]), None)
        if asked is None:
            return self._json(404, {"detail": f"Request {query['request_id'][0]!r} not found"})
        with self.server.changed:
            self.server.changed.wait_for(lambda: asked.status in ENDED)
        payload = self._payload(asked, body="a pickled object", error=asked.error)
        if asked.error:
            return self._json(500, {"detail": payload})
        self._json(200, payload)

    def _stranger(self) -> bool:
        known = self.headers["Authorization"] == f"Bearer {TOKEN}" and self.headers["X-SkyPilot-API-Version"]
        if not known:
            self._json(401, {"detail": "Invalid service account token"})
        return not known

    def _payload(self, asked: Asked, *, body: str, error: tuple[str, str] | None = None) -> dict[str, Any]:
        words = {"object": "a pickled object", "type": error[0], "message": error[1]} if error else None
        return {
            "request_id": asked.id,
            "name": asked.name,
            "request_body": body,
            "status": asked.status,
            "created_at": asked.at,
            "cluster_name": asked.cluster,
            "status_msg": None,
            "return_value": json.dumps(asked.value),
            "error": json.dumps(words),
        }

    def _json(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(data).encode()
        self.send_response(status)
        every = {
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            "X-SkyPilot-API-Version": "62",
        }
        for name, value in {**every, **(headers or {})}.items():
            self.send_header(name, value)
        with contextlib.suppress(ConnectionError):  # whoever asked may have ended meanwhile
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass
