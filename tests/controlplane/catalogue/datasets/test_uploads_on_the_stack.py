"""Uploads to the real web process: large, cut off, lying, endless, hostile: nothing stays behind, nothing is a 500."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

LIMIT_MB = 96
LARGE = 90 * 2**20
MAX_MEMORY = 64 * 2**20
BOUNDARY = "b0undary"
LINE = b'{"question": "What is 1 plus 1?", "answer": "#### 2", "more": "' + b"x" * 900 + b'"}\n'


@pytest.fixture(scope="module")
def stack(make_stack: Callable[..., Stack]) -> Stack:
    return make_stack(CONTROLPLANE_DATASET_MAX_MB=str(LIMIT_MB))


def incoming(stack: Stack) -> list[Path]:
    return list((stack.installation.data / "datasets" / "incoming").iterdir())


def versions(stack: Stack, name: str) -> list[list]:
    code = """
from controlplane.catalogue.datasets.models import DatasetVersion
rows = DatasetVersion.objects.filter(dataset__name=name).order_by("number")
result = [[v.number, v.bytes, v.file_name, v.folder.is_dir()] for v in rows]
"""
    return stack.django(code, name=name)


def nothing_is_left(stack: Stack, name: str) -> None:
    wait_until(lambda: not incoming(stack), lambda: f"left behind: {incoming(stack)}")
    assert versions(stack, name) == []


def post(stack: Stack, name: str, file_name: str, content: bytes, path: str = "/datasets/upload/") -> httpx.Response:
    with stack.client() as client:
        return client.post(path, data={"name": name}, files={"file": (file_name, content)}, timeout=60)


def form(name: str, file_name: bytes) -> bytes:
    """A form's beginning, up to where the file's content begins."""
    field = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="name"\r\n\r\n{name}\r\n'.encode()
    file = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="'.encode()
    return field + file + file_name + b'"\r\nContent-Type: text/html\r\n\r\n'


END = f"\r\n--{BOUNDARY}--\r\n".encode()


def raw(stack: Stack, *headers: str) -> socket.socket:
    """A connection on which an upload by a signed-in operator has begun."""
    cookies = "; ".join(f"{k}={v}" for k, v in {**stack.cookies(), stack.csrf_cookie: "t" * 32}.items())
    lines = (
        "POST /datasets/upload/ HTTP/1.1", f"Host: {stack.url.partition('//')[2]}", f"Cookie: {cookies}",
        f"X-CSRFToken: {'t' * 32}", f"Origin: {stack.url}", f"Content-Type: multipart/form-data; boundary={BOUNDARY}",
        *headers,
    )  # fmt: skip
    host, port = stack.url.partition("//")[2].split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall("\r\n".join((*lines, "", "")).encode())
    return connection


def status_of(connection: socket.socket) -> int:
    """0: hung up on without an answer."""
    try:
        head = connection.recv(4096)
    except ConnectionError:
        return 0
    return int(head.split()[1]) if head else 0


def web(stack: Stack) -> int:
    return stack.fleet.pids()["web"]


def half_stored(stack: Stack) -> list[str]:
    """Bodies that are on their way: files without a name, which only the web process has open."""
    opened = []
    for link in Path(f"/proc/{web(stack)}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            opened.append(os.readlink(link))
    return [path for path in opened if "/datasets/incoming" in path]


def peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def test_a_large_file_does_not_pass_through_memory(stack: Stack) -> None:
    post(stack, "warm", "rows.jsonl", LINE)
    pid = web(stack)
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    before = peak(pid)
    head = form("large", b"large.jsonl")
    with raw(stack, f"Content-Length: {len(head) + LARGE // len(LINE) * len(LINE) + len(END)}") as connection:
        connection.sendall(head)
        for _ in range(LARGE // len(LINE)):
            connection.sendall(LINE)
        connection.sendall(END)
        assert status_of(connection) == 302
    assert peak(pid) - before < MAX_MEMORY
    assert versions(stack, "large") == [[1, LARGE // len(LINE) * len(LINE), "large.jsonl", True]]
    wait_until(lambda: not incoming(stack), lambda: f"left behind: {incoming(stack)}")


def test_an_upload_cut_off_half_way_leaves_nothing(stack: Stack) -> None:
    with raw(stack, "Content-Length: 10000000") as connection:
        connection.sendall(form("cut off", b"x.jsonl") + LINE * 4000)
        wait_until(lambda: half_stored(stack), lambda: "nothing arrived")
    wait_until(lambda: not half_stored(stack), lambda: f"still open: {half_stored(stack)}")
    nothing_is_left(stack, "cut off")


@pytest.mark.parametrize("declared", [10, 0])
def test_a_length_that_is_less_than_what_comes_stores_nothing(stack: Stack, declared: int) -> None:
    with raw(stack, f"Content-Length: {declared}") as connection:
        connection.sendall(form("lies", b"x.jsonl") + LINE + END)
        assert status_of(connection) in (0, 400, 403, 422)
    nothing_is_left(stack, "lies")


@pytest.mark.parametrize("length", ["-5", "1e9", "5, 6", str(10**30)])
def test_a_length_that_is_no_length_is_refused(stack: Stack, length: str) -> None:
    with raw(stack, f"Content-Length: {length}") as connection:
        assert status_of(connection) in (0, 400, 413)
    nothing_is_left(stack, "lies")


def test_an_upload_without_end_is_stopped_at_the_limit(stack: Stack) -> None:
    piece = LINE * 1000
    with raw(stack, "Transfer-Encoding: chunked") as connection:
        sent, head = 0, form("endless", b"x.jsonl")
        connection.sendall(b"%x\r\n%s\r\n" % (len(head), head))
        try:
            while sent < 2 * LIMIT_MB * 2**20:
                connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                sent += len(piece)
        except ConnectionError:
            pass
        assert sent < 2 * LIMIT_MB * 2**20
        assert status_of(connection) in (0, 413)
    nothing_is_left(stack, "endless")


def test_a_file_over_the_limit_is_told_in_words(stack: Stack) -> None:
    answer = post(stack, "over", "x.jsonl", b"x" * (LIMIT_MB * 2**20 + 1))
    assert answer.status_code == 422
    assert f"larger than {LIMIT_MB}" in answer.text
    nothing_is_left(stack, "over")


def test_a_thousand_and_one_parts_are_refused(stack: Stack) -> None:
    with stack.client() as client:
        fields = {f"field{n}": (None, "x") for n in range(1001)}
        assert client.post("/datasets/upload/", files={**fields, "file": ("x", LINE)}).status_code == 400
        many = [("file", (f"{n}.jsonl", LINE)) for n in range(1001)]
        assert client.post("/datasets/upload/", data={"name": "many"}, files=many).status_code == 400
    nothing_is_left(stack, "many")


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "empty"), (None, "Choose a file")],
)
def test_no_file_is_told(stack: Stack, content: bytes | None, told: str) -> None:
    with stack.client() as client:
        files = {} if content is None else {"file": ("x.jsonl", content)}
        answer = client.post("/datasets/upload/", data={"name": "none"}, files=files)
    assert answer.status_code == 422
    assert told in answer.text
    nothing_is_left(stack, "none")


@pytest.mark.parametrize(
    "file_name",
    [
        b"../../../etc/passwd", b"/etc/cron.d/x", b"C:\\\\Windows\\\\CON", b"%2e%2e%2fx", b"x" * 300 + b".jsonl",
        "evil\u202etxt.jsonl".encode(), b"a\x00b.jsonl", b"; rm -rf ~ #.jsonl", b"<script>alert(1)</script>.jsonl",
        b"..", b"a\tb\x7f.jsonl", b"\xff\xfe.jsonl",
    ],
    ids=range(12),
)  # fmt: skip
def test_a_file_name_is_only_ever_text(stack: Stack, file_name: bytes, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.id
    body = form(f"named {name}", file_name) + LINE + END
    with raw(stack, f"Content-Length: {len(body)}") as connection:
        connection.sendall(body)
        status = status_of(connection)
    kept = versions(stack, f"named {name}")
    assert status in (302, 422)
    assert len(kept) == (status == 302)
    for _, _, shown, there in kept:
        assert there
        assert shown.isprintable()
        assert "/" not in shown
        assert len(shown) <= 255
    wait_until(lambda: not incoming(stack), lambda: f"left behind: {incoming(stack)}")


def at_once(act: Callable[[int], httpx.Response], many: int = 4) -> Iterator[httpx.Response]:
    gate, answers = threading.Barrier(many), []

    def one(number: int) -> None:
        gate.wait()
        answers.append(act(number))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield from answers


def test_identical_uploads_of_a_new_name_at_once_make_one_dataset(stack: Stack) -> None:
    statuses = [answer.status_code for answer in at_once(lambda _: post(stack, "twins", "x.jsonl", LINE * 500))]
    assert sorted(statuses) == [302, 422, 422, 422]
    assert [number for number, *_ in versions(stack, "twins")] == [1]
    wait_until(lambda: not incoming(stack), lambda: f"left behind: {incoming(stack)}")


def test_identical_uploads_of_one_dataset_at_once_become_versions_in_turn(stack: Stack) -> None:
    first = post(stack, "turns", "x.jsonl", LINE).headers["location"]
    path = "/".join(first.split("/")[:3]) + "/upload/"
    answers = list(at_once(lambda _: post(stack, "", "x.jsonl", LINE * 500, path)))
    assert [answer.status_code for answer in answers] == [302] * 4
    assert [number for number, *_ in versions(stack, "turns")] == [1, 2, 3, 4, 5]
    wait_until(lambda: not incoming(stack), lambda: f"left behind: {incoming(stack)}")


def test_the_worker_checks_an_upload_whose_tab_is_closed(stack: Stack) -> None:
    post(stack, "checked", "x.jsonl", LINE * 3)
    code = """
from controlplane.catalogue.datasets.models import DatasetVersion
version = DatasetVersion.objects.get(dataset__name="checked")
result = [version.status, version.rows, version.report.get("file_error")]
"""
    wait_until(lambda: stack.django(code)[0] != "checking", lambda: str(stack.django(code)))
    assert stack.django(code)[:2] == ["needs_mapping", 3]


def test_a_viewer_uploads_nothing(stack: Stack) -> None:
    with stack.client("viewer") as client:
        answer = client.post("/datasets/upload/", data={"name": "viewed"}, files={"file": ("x.jsonl", LINE * 50)})
    assert answer.status_code == 403
    nothing_is_left(stack, "viewed")
