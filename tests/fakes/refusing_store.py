"""An S3-compatible store that has nothing and refuses every upload in S3's own words: full, wrong keys, no bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from workers.contract.wire.artifacts import Store

FULL = 507, "InsufficientStorage", "There is not enough storage space"
OVER_QUOTA = 403, "QuotaExceeded", "The quota of this bucket is used up"
WRONG_KEY = 403, "InvalidAccessKeyId", "The access key does not exist"
WRONG_SECRET = 403, "SignatureDoesNotMatch", "The signature does not match"
NO_BUCKET = 404, "NoSuchBucket", "The specified bucket does not exist"


@contextmanager
def refusing_store(how: tuple[int, str, str]) -> Iterator[Store]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(*how))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Store(f"http://127.0.0.1:{server.server_port}", "grpo", "team", "us-east-1", "id", "secret")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(status: int, code: str, message: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(404, b"")

        def do_GET(self) -> None:
            self._answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())

        do_POST = do_PUT

        def _answer(self, how: int, body: bytes) -> None:
            self.send_response(how)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if self.command != "HEAD" else b"")

        def log_message(self, *args: object) -> None:
            """Quiet."""

    return Handler
