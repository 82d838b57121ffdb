"""What a vLLM server tells of itself between two looks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from workers.supervisor.servers.servermetrics import ServerMetrics, combine


class Told(ThreadingHTTPServer):
    text = ""


class Answer(BaseHTTPRequestHandler):
    server: Told

    def do_GET(self) -> None:
        body = self.server.text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Told]:
    with Told(("127.0.0.1", 0), Answer) as told:
        threading.Thread(target=told.serve_forever, daemon=True).start()
        yield told
        told.shutdown()


def counters(queries: int | None, hits: int, tokens: int = 0) -> str:
    lines = [f'vllm:generation_tokens_total{{engine="0"}} {tokens}', "vllm:num_requests_running 1"]
    if queries is not None:
        lines += [f"vllm:prefix_cache_queries_total {queries}", f"vllm:prefix_cache_hits_total {hits}"]
    return "\n".join(lines)


def looks(server: Told, *texts: str) -> list[dict[str, float]]:
    samples: list[dict[str, float]] = []
    metrics = ServerMetrics([f"http://127.0.0.1:{server.server_port}"], interval_s=2.0, on_sample=samples.append)
    for look, text in enumerate(texts):
        server.text = text
        metrics.tick(10.0 + 2 * look)
    return samples


def test_prefix_hits_are_the_share_of_what_was_looked_up_since_the_look_before(server: Told) -> None:
    found = looks(server, counters(1000, 900), counters(1400, 1000, tokens=500))
    assert "vllm/prefix_hit_percent" not in found[0]
    assert found[1]["vllm/prefix_hit_percent"] == 25.0
    assert found[1]["vllm/generated_tokens_per_s"] == 250.0


def test_without_a_look_up_there_is_no_share(server: Told) -> None:
    same, without = looks(server, counters(5, 5), counters(5, 5), counters(None, 0))[1:]
    assert "vllm/prefix_hit_percent" not in same
    assert "vllm/prefix_hit_percent" not in without


def test_a_server_that_was_started_anew_has_no_negative_share(server: Told) -> None:
    found = looks(server, counters(5000, 4000), counters(100, 50), counters(200, 150))
    assert "vllm/prefix_hit_percent" not in found[1]
    assert found[2]["vllm/prefix_hit_percent"] == 100.0


def test_the_share_of_several_servers_is_their_mean() -> None:
    servers = [{"vllm/prefix_hit_percent": 20.0}, {"vllm/prefix_hit_percent": 60.0}]
    assert combine(servers) == {"vllm/prefix_hit_percent": 40.0}
