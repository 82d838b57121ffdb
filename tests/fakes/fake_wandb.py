"""A W&B server on loopback, as far as its client asks for one to send figures: the state of a run, its start, and lines
of its history by offset, which a later request may send again."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HISTORY = "wandb-history.jsonl"


class WandbServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.runs: dict[str, dict[str, Any]] = {}
        """By its name: the variables with which it was started."""
        self.lines: dict[int, str] = {}
        """Of the history, by their offsets."""
        self.exit_code: int | None = None
        self.asked: list[str] = []

    def history(self) -> list[list[float]]:
        rows = [json.loads(self.lines[at]) for at in sorted(self.lines)]
        return [[row["_step"], row["train/loss"]] for row in rows]

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        name = (re.search(r"(?:query|mutation)\s+(\w+)", query) or ["", ""])[1]
        self.asked.append(name)
        if name == "UpsertBucket":
            run = self.runs.setdefault(str(variables["name"]), {})
            run |= {name: value for name, value in variables.items() if value is not None}
            return {"upsertBucket": {"inserted": len(self.runs) == 1, "bucket": self._bucket(run)}}
        if name == "RunResumeStatus":
            known = self.runs.get(str(variables["name"]))
            return {"model": {"id": "p", "name": variables["project"], "bucket": known and self._resumed(known)}}
        if name == "CreateRunFiles":
            files = [{"name": one, "uploadUrl": f"{self.address}/upload/{one}"} for one in variables["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        return {}

    def _bucket(self, run: dict[str, Any]) -> dict[str, Any]:
        project = {"id": "p", "name": run["project"], "entity": {"id": "e", "name": run.get("entity") or "team"}}
        return {"id": "b", "name": run["name"], "displayName": run["displayName"], "project": project, "config": "{}"}

    def _resumed(self, run: dict[str, Any]) -> dict[str, Any]:
        last = self.lines[max(self.lines)] if self.lines else "{}"
        counts = {"historyLineCount": len(self.lines), "eventsLineCount": 0, "logLineCount": 0}
        tails = {"historyTail": json.dumps([last]), "eventsTail": "[]", "summaryMetrics": last, "config": "{}"}
        return {**self._bucket(run), **counts, **tails, "tags": [], "wandbConfig": '{"t": 1}'}


@contextmanager
def running() -> Iterator[WandbServer]:
    server = WandbServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: WandbServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        if self.path == "/graphql":
            asked = json.loads(body)
            self._json({"data": self.server.answer(asked["query"], asked.get("variables") or {})})
            return
        if self.path.endswith("/file_stream"):
            sent = json.loads(body)
            part = (sent.get("files") or {}).get(HISTORY)
            for number, line in enumerate(part["content"] if part else ()):
                self.server.lines[part["offset"] + number] = line
            self.server.exit_code = sent.get("exitcode", self.server.exit_code)
        self._json({})

    do_GET = do_PUT = do_POST

    def _json(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass
