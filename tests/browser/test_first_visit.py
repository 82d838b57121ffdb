"""How `bench page` times a first visit: until every chart on screen is drawn, in a Chromium whose debugger is off."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.benchmarks import _chromium, _first_visit

pytestmark = pytest.mark.usefixtures("chromium")
PAGE = b"""<!doctype html><title>Two charts on screen, one below it</title>
<div class="chart" style="height: 300px"></div><div class="chart" style="height: 300px"></div>
<div style="height: 2000px"></div><div class="chart" style="height: 300px"></div>
<script>
const [first, second] = document.querySelectorAll(".chart");
first.classList.add("drawn");
setTimeout(() => second.classList.add("drawn"), 400);
</script>"""


@contextmanager
def served(answer: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """Its address, and the cookies of each request."""
    cookies: list[str | None] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers["Cookie"])
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", cookies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_visit_ends_with_the_last_chart_on_screen_and_each_is_a_new_one() -> None:
    with served(PAGE) as (address, cookies), _first_visit.Visitor() as visitor:
        visits = [visitor.charts_s(address, {"session": name}) for name in ("one", "two")]
    assert [count for count, _ in visits] == [2, 2]
    assert all(seconds >= 0.4 for _, seconds in visits)
    assert set(cookies) == {"session=one", "session=two"}


def test_charts_that_are_never_drawn_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_chromium, "LIMIT_S", 0.5)
    never = PAGE.replace(b"drawn", b"waiting")
    with (
        served(never) as (address, _),
        _first_visit.Visitor() as visitor,
        pytest.raises(TimeoutError, match="not drawn"),
    ):
        visitor.charts_s(address, {})
