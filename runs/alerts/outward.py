"""One POST to an address that a person gave us: to an IP that was checked as it is connected to, within one deadline,
reading no more than a little of the answer. Redirects are answers like others, and no proxy is used: neither could be
checked."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import httpcore
import httpx

from controlplane.http import addresses

DEADLINE_S = 10.0
"""From the name's look-up to the last byte."""
CONNECT_S = 4.0
"""For one of several IPs: a dead one leaves time for the next."""
MOST_READ = 32 * 1024
"""Bytes off the wire, TLS handshake, headers and body together."""
MOST_IPS = 4


class NotSent(Exception):
    """The message did not arrive; the text is for people."""

    for_good = False
    """Another try would fail as well."""
    wait_s = 0.0
    """What the server asks for before another try."""


class AddressRefused(NotSent):
    """Nothing may be sent there."""

    for_good = True


class TookTooLong(NotSent):
    """The server did not answer in time."""


@dataclass(frozen=True)
class HookAnswer:
    status: int
    text: str
    """The start of its body."""
    retry_after: str = ""


def post(url: str, body: bytes, *, private_too: bool, deadline_s: float = DEADLINE_S) -> HookAnswer:
    """Send JSON and hear the answer, whatever its status. NotSent: there was none."""
    target = httpx.URL(url)
    backend = _CheckedBackend(_Budget(deadline_s), private_too=private_too, plain=target.scheme == "http")
    headers: dict[bytes | str, bytes | str] = {
        "Host": target.netloc.decode("ascii"),
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
    }
    headers |= {"User-Agent": "grpo-control-plane", "Connection": "close"}
    # Time-outs of single reads are no matter: the budget is asked before each.
    patience = {"timeout": {"connect": deadline_s, "read": deadline_s, "write": deadline_s, "pool": deadline_s}}
    with httpcore.ConnectionPool(ssl_context=_tls(), network_backend=backend, retries=0) as pool:
        try:
            with pool.stream("POST", _for_core(target), headers=headers, content=body, extensions=patience) as answer:
                named = {name.lower(): value.decode("latin-1") for name, value in answer.headers}
                return HookAnswer(answer.status, _start(answer), named.get(b"retry-after", ""))
        except httpcore.TimeoutException:
            raise TookTooLong(f"No answer within {deadline_s:g} s.") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError) as error:
            raise NotSent(_words(error)) from None


def _for_core(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _start(answer: httpcore.Response, most: int = 300) -> str:
    """Of its body: servers say there what they did not like. What breaks off later has arrived all the same."""
    got = b""
    try:
        for part in answer.iter_stream():
            got += part
            if len(got) >= most:
                break
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException):
        pass
    return got[:most].decode(errors="replace")


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"The connection failed: {text}" if text else "The server closed the connection without an answer."


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class _Budget:
    """Seconds and bytes that are left of a delivery."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._bytes = MOST_READ

    def seconds(self, at_most: float | None = None) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout
        return left if at_most is None else min(left, at_most)

    def read(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise httpcore.ReadError(f"The answer is longer than {MOST_READ} bytes.")


class _CheckedBackend(httpcore.NetworkBackend):
    """Looks a name up and connects to an IP of it that may be connected to."""

    def __init__(self, budget: _Budget, *, private_too: bool, plain: bool) -> None:
        self._budget = budget
        self._private_too = private_too
        self._plain = plain
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError("no address")
        for ip in self._allowed(host, port):
            try:
                # An IP, so nothing is looked up again.
                stream = self._sockets.connect_tcp(ip, port, self._budget.seconds(CONNECT_S))
                return _Bounded(stream, self._budget)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    def _allowed(self, host: str, port: int) -> list[str]:
        found = look_up(host, port, self._budget.seconds())
        refusals = {ip: self._refusal(ip) for ip in found}
        allowed = [ip for ip in found if refusals[ip] is None]
        if not allowed:
            raise AddressRefused(f"Nothing is sent there: {next(iter(refusals.values()))}.")
        return allowed[:MOST_IPS]

    def _refusal(self, ip: str) -> str | None:
        if (why := addresses.refusal(ip, private_too=self._private_too)) is not None:
            return why
        if self._plain and not addresses.is_private(ip):
            return f"{ip} is a public address, which takes https"
        return None


def look_up(host: str, port: int, seconds: float) -> list[str]:
    """The IPs of a name, each once, in the resolver's order. In a thread: the resolver knows no deadline of ours."""
    found: list[str] = []
    problem: list[OSError] = []

    def ask() -> None:
        try:
            for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                found.append(str(place[0]))
        except (OSError, UnicodeError, OverflowError) as error:
            problem.append(error if isinstance(error, OSError) else OSError(str(error)))

    asking = threading.Thread(target=ask, name="look-up", daemon=True)
    asking.start()
    asking.join(seconds)
    if asking.is_alive():
        raise TookTooLong(f"Looking up {host} timed out.")
    if problem or not found:
        why = problem[0].strerror or str(problem[0]) if problem else "it has no address"
        raise NotSent(f"{host} could not be looked up: {why}.")
    return list(dict.fromkeys(found))


class _Bounded(httpcore.NetworkStream):
    """A connection whose every act spends of the budget: a server that drips a byte a second holds nobody up."""

    def __init__(self, stream: httpcore.NetworkStream, budget: _Budget) -> None:
        self._stream = stream
        self._budget = budget

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        got = self._stream.read(min(max_bytes, 8192), self._budget.seconds())
        self._budget.read(len(got))
        return got

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._budget.seconds())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        inner = self._stream.start_tls(ssl_context, server_hostname, self._budget.seconds())
        return _Bounded(inner, self._budget)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
