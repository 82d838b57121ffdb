"""Outbound requests against real servers that answer, mislead, drip, flood and hang."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.runs.engine.alerts.servers import answering, dripping, flooding, hook, silent
from workers import outbound
from workers.outbound import AddressRefused, Disconnected, OutboundError, Response, TimedOut, TooLong

KEY = "sk-very-secret-key-0123456789"
Resolver = Callable[..., list[str]]


def send(url: str, **more: Any) -> Response:
    given = {"body": b"{}", "seconds": 5.0, "limit": 1000, "headers": {"Authorization": f"Bearer {KEY}"}, **more}
    return outbound.send("POST", url, **given)


def only(*allowed: str) -> outbound.Rule:
    return lambda ip: None if ip in allowed else f"{ip} is not allowed"


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    """A name server of our own: `resolver([...], [...])` are its answers, one after another."""
    names: list[str] = []
    real = socket.getaddrinfo

    def answers(*answers: list[str]) -> list[str]:
        def look_up(host: str, port: int, *more: Any, **named: Any) -> list[Any]:
            if not host.endswith(".example"):  # an address, which names itself
                return real(host, port, *more, **named)
            names.append(host)
            ips = answers[min(len(names), len(answers)) - 1]
            return [entry for ip in ips for entry in real(ip, port, type=socket.SOCK_STREAM)]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        return names

    return answers


def test_a_request_arrives_whole_and_its_answer_comes_back() -> None:
    with hook(answering("200 OK", "fine", "Retry-After: 7")) as server:
        answer = send(f"{server.url}?a=b#c", body=b'{"text": "hello"}')
    assert (answer.status, answer.whole(), answer.headers["Retry-After"]) == (200, b"fine", "7")
    head, _, body = server.heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /services/T000/B000/a-secret-part?a=b HTTP/1.1\r\n")
    lines = head.decode().splitlines()
    for line in (f"Host: 127.0.0.1:{server.port}", "Connection: close", "Accept-Encoding: identity"):
        assert lines.count(line) == 1
    assert body == b'{"text": "hello"}'


def test_an_answer_in_chunks_is_put_together() -> None:
    with hook(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    ) as s:
        assert send(s.url).whole() == b"ok"


def test_a_redirect_is_an_answer_and_not_followed() -> None:
    with hook() as inside, hook(answering("307 Moved", "", f"Location: {inside.url}")) as server:
        assert send(server.url).status == 307
    assert inside.heard == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://host/v1", "starts with https"),
        ("host/v1", "starts with https"),
        ("https:///v1", "names a server"),
        ("http://user:pass@host/v1", "user name or password"),
        ("http://host:99999/v1", "port is invalid"),
        ("http://[::1/v1", "port is invalid"),
        ("http://h/v1\r\nX: 1", "without spaces"),
        ("http://host/a b", "without spaces"),
        ("http://jüdge.example/", "xn--"),
    ],
)
def test_what_is_no_address_is_refused(url: str, says: str) -> None:
    with pytest.raises(AddressRefused, match=says):
        send(url)


def test_the_rule_judges_the_ip_address_however_it_is_written(subtests: pytest.Subtests) -> None:
    for host in ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "127.1"]:
        with subtests.test(host=host):
            with (
                hook() as server,
                pytest.raises(AddressRefused, match=r"may be sent there: .* is not allowed"),
            ):
                send(f"http://{host}:{server.port}/", rule=only("8.8.8.8"))
            assert server.heard == []


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(resolver: Resolver) -> None:
    with hook() as inside:
        # A name that is allowed when it is checked, and this machine when it is looked up again.
        names = resolver(["127.0.0.3"], ["127.0.0.1"])
        with pytest.raises(Disconnected, match="Connection refused"):
            send(f"http://rebinding.example:{inside.port}/", rule=only("127.0.0.3"))
        assert (names, inside.heard) == (["rebinding.example"], [])


def test_of_a_names_addresses_only_those_that_are_allowed_are_used(resolver: Resolver) -> None:
    with hook() as server:
        resolver(["169.254.169.254", "127.0.0.1"])
        assert send(f"http://chat.example:{server.port}/", rule=only("127.0.0.1")).status == 200


def test_a_dead_address_of_a_name_leaves_time_for_the_next(resolver: Resolver) -> None:
    with hook() as server:
        resolver(["127.0.0.2", "127.0.0.1"])  # nobody listens on the first
        assert send(f"http://chat.example:{server.port}/").status == 200


def test_a_name_that_does_not_exist_is_a_failure_with_words() -> None:
    with pytest.raises(Disconnected, match=r"nowhere\.invalid could not be looked up"):
        send("https://nowhere.invalid/")


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with hook(answering("500 Proxy")) as proxy, hook() as server:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert send(server.url).status == 200
    assert proxy.heard == []


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The server's side for chat.example, whose authority is trusted."""
    server_side, authority = certificate(tmp_path, "chat.example")
    monkeypatch.setattr(outbound, "_authorities", lambda: ssl.create_default_context(cafile=str(authority)))
    return server_side


def test_the_certificate_must_be_that_of_the_name(tls: ssl.SSLContext, resolver: Resolver) -> None:
    resolver(["127.0.0.1"])
    with hook(tls=tls) as server:
        assert send(f"https://chat.example:{server.port}/").status == 200
        with pytest.raises(OutboundError, match=r"certificate is not valid for 'other.example'"):
            send(f"https://other.example:{server.port}/")
    assert len(server.heard) == 1


def test_an_authority_that_nobody_knows_is_not_trusted(tmp_path: Path) -> None:
    with hook(tls=certificate(tmp_path, "chat.example")[0]) as server:
        with pytest.raises(OutboundError, match="self-signed certificate"):
            send(f"https://127.0.0.1:{server.port}/")
        assert server.heard == []


def test_through_a_proxy_tls_is_spoken_with_the_server(tls: ssl.SSLContext) -> None:
    def tunnel(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 Established\r\n\r\n")
        with socket.create_connection(("127.0.0.1", server.port)) as onward:
            threading.Thread(target=pump, args=(connection, onward), daemon=True).start()
            pump(onward, connection)

    with hook(tls=tls) as server, hook(tunnel) as proxy:
        through = f"http://me:p%40ss@127.0.0.1:{proxy.port}"
        assert send("https://chat.example/x", proxy=through).whole() == b"ok"
    head = proxy.heard[0].decode()
    assert head.startswith("CONNECT chat.example:443 HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in head
    assert KEY not in head


def test_a_proxy_that_refuses_is_named() -> None:
    with hook(answering("407 Who")) as proxy, pytest.raises(OutboundError, match="The proxy responded with status 407"):
        send("https://chat.example/x", proxy=f"http://127.0.0.1:{proxy.port}")


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)


def endless(start: bytes, more: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(start)
        while True:
            connection.sendall(more)

    return answer


def dripping_body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    dripping(connection)


@pytest.mark.parametrize("behaviour", [silent, dripping])
def test_a_server_that_keeps_us_waiting_is_left_at_the_deadline(behaviour: Callable[..., None]) -> None:
    with hook(behaviour) as server, pytest.raises(TimedOut, match=r"No response within 0\.3 s"):
        send(server.url, seconds=0.3)


def test_a_body_that_drips_is_left_at_the_deadline_and_its_status_known() -> None:
    with hook(dripping_body) as server:
        answer = send(server.url, seconds=0.3)
    assert answer.status == 200
    with pytest.raises(TimedOut):
        answer.whole()


def test_a_name_server_that_keeps_us_waiting_is_left_too(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60) and [])
    try:
        with pytest.raises(TimedOut):
            send("https://chat.example/", seconds=0.1)
    finally:
        over.set()


@pytest.mark.parametrize(
    "answer",
    [
        endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
        answering("200 OK", "x" * 5_000_000),
        answering("500 No", "x" * 1_001),
    ],
)
def test_of_a_body_that_is_too_long_the_start_is_read(answer: Any) -> None:
    with hook(answer) as server:
        got = send(server.url)
    assert got.start == b"x" * 1000
    with pytest.raises(TooLong, match="more than 1,000 bytes"):
        got.whole()


@pytest.mark.parametrize(
    "answer",
    [
        flooding,
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: a\r\n" % number for number in range(10_000)),
        b"\x00\xff" * 1000,
        b"",
        answering("200 OK", "?", "Content-Encoding: gzip"),
    ],
)
def test_an_answer_that_is_none_is_a_failure_with_words(answer: Any) -> None:
    with hook(answer) as server, pytest.raises(OutboundError) as raised:
        send(server.url)
    assert str(raised.value).startswith(("The connection failed: ", "The response's head", "The server responded in"))


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffff\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
    ],
)
def test_a_body_that_breaks_off_is_not_taken_for_a_whole_one(answer: bytes) -> None:
    with hook(answer) as server, pytest.raises(Disconnected, match="closed it before the response was complete"):
        send(server.url).whole()


@pytest.mark.parametrize("answer", [f"HTTP/1.1 {KEY}\r\n\r\n".encode(), f"{KEY}\r\n\r\n".encode()])
def test_no_failure_repeats_what_the_server_or_the_request_said(answer: bytes) -> None:
    with hook(answer) as server, pytest.raises(OutboundError) as raised:
        send(server.url)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("value", [f"{KEY}\r\nX-Other: 1", f"{KEY}\u0394"])
def test_a_header_that_cannot_be_sent_is_not_repeated(value: str) -> None:
    with hook() as server, pytest.raises(OutboundError) as raised:
        send(server.url, headers={"Authorization": value})
    assert KEY not in str(raised.value)
    assert server.heard == []


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """A server's side of TLS for a name, and who vouches for it (itself)."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ip_address("192.0.2.1"))])
    made = x509.CertificateBuilder(who, who, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
    signed = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(signed.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context, folder / "cert.pem"
