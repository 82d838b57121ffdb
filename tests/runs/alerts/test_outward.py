"""What leaves this installation: where to, and for how long it may take. The servers are real."""

from __future__ import annotations

import socket
import ssl
import time
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

from controlplane.http import addresses
from runs.alerts import outward
from runs.alerts.outward import AddressRefused, NotSent, TookTooLong, post
from tests.runs.alerts.servers import answering, dripping, flooding, hook, silent

PRIVATE = ("10.1.2.3", "172.16.0.1", "192.168.1.1", "127.0.0.1", "::1", "fd12::1", "100.64.0.1")
NEVER = (
    "0.0.0.0", "::", "169.254.169.254", "169.254.1.1", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1",
    "255.255.255.255", "240.0.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "2001:db8::1", "fd00:ec2::254",
    "100.100.100.200", "168.63.129.16", "2002:7f00:1::", "2001:0:7f00:1::", "64:ff9b::a9fe:a9fe",
)  # fmt: skip


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_a_public_address_may_be_sent_to(address: str) -> None:
    assert addresses.refusal(address, private_too=False) is None


@pytest.mark.parametrize("address", [*PRIVATE, "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1"])
def test_a_private_address_takes_an_admins_word_however_it_is_written(address: str) -> None:
    assert addresses.refusal(address, private_too=False)
    assert addresses.refusal(address, private_too=True) is None


@pytest.mark.parametrize("address", [*NEVER, "::ffff:0.0.0.0", "::ffff:169.254.169.254"])
def test_some_addresses_are_never_sent_to(address: str) -> None:
    assert addresses.refusal(address, private_too=False)
    assert addresses.refusal(address, private_too=True)


def test_a_message_arrives_whole_and_its_answer_comes_back() -> None:
    with hook(answering("200 OK", "ok")) as server:
        answer = post(server.url, b'{"text": "hello"}', private_too=True)
    assert (answer.status, answer.text) == (200, "ok")
    head, _, body = server.heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /services/T000/B000/a-secret-part HTTP/1.1")
    assert f"Host: 127.0.0.1:{server.port}".encode() in head
    assert body == b'{"text": "hello"}'


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "127.1"])
def test_no_way_of_writing_it_leads_to_this_machine(host: str) -> None:
    with hook() as server, pytest.raises(AddressRefused, match="private address"):
        post(f"http://{host}:{server.port}/", b"{}", private_too=False)
    assert server.heard == []


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """A name server of our own: `resolver([...], [...])` are its answers, one after another."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def answers(*answers: list[str]) -> list[str]:
        def look_up(host: str, port: int, *more: Any, **named: Any) -> list[Any]:
            if not host.endswith(".example"):  # an address, which names itself
                return real(host, port, *more, **named)
            asked.append(host)
            ips = answers[min(len(asked), len(answers)) - 1]
            return [(socket.AF_INET6 if ":" in ip else socket.AF_INET, 1, 6, "", (ip, port)) for ip in ips]

        monkeypatch.setattr(outward.socket, "getaddrinfo", look_up)
        return asked

    return answers


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    resolver: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A name that is public when it is checked, and this machine when it is looked up again.
    asked = resolver(["93.184.215.14"], ["127.0.0.1"])
    connected: list[str] = []

    def connect(place: tuple[str, int], *_: Any, **__: Any) -> socket.socket:
        connected.append(place[0])
        raise ConnectionRefusedError("Connection refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(NotSent, match="refused"):
        post("https://rebinding.example/", b"{}", private_too=False)
    assert (asked, connected) == (["rebinding.example"], ["93.184.215.14"])


def test_of_a_names_addresses_only_those_that_may_be_connected_to_are(resolver: Callable[..., list[str]]) -> None:
    with hook() as server:
        resolver(["169.254.169.254", "127.0.0.1"])
        assert post(f"http://chat.example:{server.port}/", b"{}", private_too=True).status == 200
        resolver(["169.254.169.254", "10.0.0.1"])
        with pytest.raises(AddressRefused):
            post(f"http://chat.example:{server.port}/", b"{}", private_too=False)


def test_a_dead_address_of_a_name_leaves_time_for_the_next(resolver: Callable[..., list[str]]) -> None:
    with hook() as server:
        resolver(["127.0.0.2", "127.0.0.1"])  # nobody listens on the first
        assert post(f"http://chat.example:{server.port}/", b"{}", private_too=True).status == 200


def test_a_public_server_is_not_spoken_to_in_the_clear(resolver: Callable[..., list[str]]) -> None:
    resolver(["93.184.215.14"])
    with pytest.raises(AddressRefused, match="takes https"):
        post("http://chat.example/", b"{}", private_too=True)


def test_a_redirect_is_not_followed() -> None:
    with hook() as inside, hook(answering("307 Moved", "", f"Location: {inside.url}")) as server:
        assert post(server.url, b"{}", private_too=True).status == 307
    assert inside.heard == []


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with hook(answering("500 Proxy")) as proxy, hook() as server:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert post(server.url, b"{}", private_too=True).status == 200
    assert proxy.heard == []


@pytest.mark.parametrize("behaviour", [silent, dripping])
def test_a_server_that_keeps_us_waiting_is_left_at_the_deadline(behaviour: Callable[..., None]) -> None:
    with hook(behaviour) as server, pytest.raises(TookTooLong, match=r"No answer within 0\.3 s"):
        post(server.url, b"{}", private_too=True, deadline_s=0.3)


def test_a_name_server_that_keeps_us_waiting_is_left_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outward.socket, "getaddrinfo", lambda *_, **__: time.sleep(1) or [])
    with pytest.raises(TookTooLong, match="timed out"):
        post("https://chat.example/", b"{}", private_too=True, deadline_s=0.1)


def test_an_answer_without_an_end_is_not_read_to_its_end() -> None:
    with hook(flooding) as server, pytest.raises(NotSent, match="failed"):
        post(server.url, b"{}", private_too=True)
    long = answering("200 OK", "x" * 5_000_000)
    with hook(long) as server:
        assert len(post(server.url, b"{}", private_too=True).text) == 300


def test_a_server_that_hangs_up_is_a_failure_with_words() -> None:
    with hook(lambda connection: None) as server, pytest.raises(NotSent, match="connection"):
        post(server.url, b"{}", private_too=True)


def test_a_name_that_does_not_exist_is_a_failure_with_words() -> None:
    with pytest.raises(NotSent, match=r"nowhere\.invalid could not be looked up"):
        post("https://nowhere.invalid/", b"{}", private_too=False)


def test_the_certificate_must_be_that_of_the_name(
    tmp_path: Path, resolver: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server_side, authority = certificate(tmp_path, "chat.example")
    monkeypatch.setattr(outward, "_tls", lambda: ssl.create_default_context(cafile=str(authority)))
    resolver(["127.0.0.1"])
    with hook(tls=server_side) as server:
        assert post(f"https://chat.example:{server.port}/", b"{}", private_too=True).status == 200
        with pytest.raises(NotSent, match="certificate"):
            post(f"https://other.example:{server.port}/", b"{}", private_too=True)
    assert len(server.heard) == 1


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
