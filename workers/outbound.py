"""HTTP requests to servers that users name: judges, webhooks, the model hub, vLLM. Each has its own connection.

Safeguards:
- The address uses http or https, is ASCII without spaces, and has no user name or password.
- A name is looked up once. The caller's rule judges each IP address, and only an allowed address is connected to.
- The certificate must be for the name, and signed by an authority of this machine or of Mozilla's list.
- One deadline covers look-up, connecting, TLS, request and response, so that a slow server can't block the caller.
- A response is limited in size: its body to the caller's limit, and everything else to 64 KiB.
- Redirects are returned, not followed. A proxy is used only if the caller names one, as a tunnel for https.
- Exceptions never contain the request's headers or text from the server.
"""

import contextlib
import http.client
import io
import os
import queue
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPConnection, HTTPMessage, HTTPResponse
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

Rule = Callable[[str], str | None]
"""Function that explains why no request may be sent to an IP address, or returns None if one may."""
CONNECT_S = 5.0
"""Time limit for connecting to one IP address, in seconds, which leaves time to try the next one."""
MAX_IPS = 4
HEAD_LIMIT = 64 * 1024
PIECE = 64 * 1024


class OutboundError(Exception):
    """Error for a missing or incomplete response. The message is for people."""


class AddressRefused(OutboundError):
    """Error for an address to which no request may be sent."""


class Disconnected(OutboundError):
    """Error for a server that can't be reached or closed the connection. A later attempt may succeed."""


class TimedOut(OutboundError):
    """Error for a response that wasn't complete by the deadline."""


class TooLong(OutboundError):
    """Error for a body that exceeds its limit."""


@dataclass(frozen=True)
class Response:
    status: int
    headers: HTTPMessage
    start: bytes
    problem: OutboundError | None = None
    """Why `start` is not the whole body; None if it is."""

    def whole(self) -> bytes:
        """Return the complete body. Raises OutboundError if it is incomplete."""
        if self.problem is not None:
            raise self.problem
        return self.start


def send(
    method: str,
    url: str,
    *,
    seconds: float,
    limit: int,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    rule: Rule | None = None,
    proxy: str = "",
) -> Response:
    """Send a request and return the response within `seconds`. `limit`: the maximum size of the body in bytes. Without
    a `rule` every IP address is allowed. Raises OutboundError if the address may not be used, the request fails, or the
    response is late or too large."""
    if reason := problem(url):
        raise AddressRefused(reason)
    deadline = time.monotonic() + seconds
    target_url, proxy_url = urlsplit(url), urlsplit(proxy or url)
    if proxy and (target_url.scheme, proxy_url.scheme) != ("https", "http"):
        raise OutboundError("Only https requests can use a proxy, and only a proxy with an http:// address.")
    with _outbound_errors(seconds), _connect(proxy_url.hostname or "", _port(proxy_url), deadline, rule) as raw_socket:
        if proxy:
            _open_tunnel(raw_socket, deadline, target_url, proxy_url)
        raw_socket.settimeout(_remaining(deadline))
        connection: socket.socket = raw_socket
        if target_url.scheme == "https":
            connection = _authorities().wrap_socket(raw_socket, server_hostname=target_url.hostname)
        with connection:
            target = (target_url.path or "/") + (f"?{target_url.query}" if target_url.query else "")
            request_headers = {"Host": target_url.netloc, "Connection": "close", **(headers or {})}
            stream = _BoundedStream(connection, deadline, HEAD_LIMIT + limit)
            return _read(_exchange(stream, method, target, body, request_headers), limit, seconds)


def problem(url: str) -> str:
    """Explain to people why an address isn't well-formed; return "" if it is."""
    try:
        address = urlsplit(url)
        _port(address)
    except ValueError:
        return "This is not a web address: its host or port is invalid."
    if address.scheme not in ("https", "http") or not address.hostname:
        return "Enter an address that starts with https:// or http:// and names a server."
    if not (url.isascii() and url.isprintable()) or " " in url:
        return "Enter the address without spaces, and international domain names in their xn-- form."
    return "Addresses with a user name or password are not allowed." if "@" in address.netloc else ""


def _port(address: SplitResult) -> int:
    return address.port or (443 if address.scheme == "https" else 80)


def _remaining(end: float) -> float:
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


@contextlib.contextmanager
def _outbound_errors(seconds: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise TimedOut(f"No response within {seconds:.3g} s.") from None
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or type(error).__name__
        raise OutboundError(f"TLS failed: {reason.rstrip('.')}.") from None
    except (http.client.RemoteDisconnected, http.client.IncompleteRead):
        raise Disconnected("The connection failed: the server closed it before the response was complete.") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise Disconnected(f"The connection failed: {reason}.") from None
    except ValueError as error:
        raise OutboundError(f"The request could not be written: {type(error).__name__}.") from None


def _connect(host: str, port: int, end: float, rule: Rule | None) -> socket.socket:
    addresses = _look_up(host, port, end)
    refusals = [rule(str(address[0])) if rule else None for *_, address in addresses]
    allowed_ips = [entry for entry, reason in zip(addresses, refusals, strict=True) if reason is None][:MAX_IPS]
    if not allowed_ips:
        raise AddressRefused(f"No request may be sent there: {refusals[0]}.")
    failure = Disconnected("")
    for family, kind, protocol, _, address in allowed_ips:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(min(_remaining(end), CONNECT_S))
            connection.connect(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError as error:
            connection.close()
            _remaining(end)
            failure = Disconnected(f"The connection failed: {error.strerror or f'no response within {CONNECT_S:g} s'}.")
    raise failure


def _look_up(host: str, port: int, end: float) -> list[Any]:
    """Look up a name and return its addresses. A thread does the work, because the resolver has no deadline."""
    results: queue.SimpleQueue[list[Any] | Exception] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            results.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError, OverflowError) as error:
            results.put(error)

    threading.Thread(target=look_up, name="look-up", daemon=True).start()
    try:
        addresses = results.get(timeout=_remaining(end))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(addresses, Exception) or not addresses:
        reason = getattr(addresses, "strerror", None) or "it has no address"
        raise Disconnected(f"{host} could not be looked up: {reason}.")
    return addresses


@lru_cache(maxsize=1)
def _authorities() -> ssl.SSLContext:
    import certifi

    context = ssl.create_default_context()
    if not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():  # these name the only authorities to trust
        context.load_verify_locations(certifi.where())
    return context


class _BoundedStream(io.RawIOBase):
    """A connection for http.client in which each operation may take the remaining time, and at most `room` bytes are
    read in total."""

    def __init__(self, connection: socket.socket, end: float, room: int) -> None:
        self._connection = connection
        self._end = end
        self._room = room

    def sendall(self, data: bytes) -> None:
        unsent = memoryview(data)
        while unsent:
            self._connection.settimeout(_remaining(self._end))
            unsent = unsent[self._connection.send(unsent) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_remaining(self._end))
        count = self._connection.recv_into(buffer)
        self._room -= count
        if self._room < 0:
            raise OutboundError("The response's headers or its framing are too long.")
        return count


def _exchange(stream: Any, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> HTTPResponse:
    connection = HTTPConnection("unused")  # the socket is set below
    connection.sock = stream
    connection.request(method, target, body, headers)
    response = HTTPResponse(stream, method=method)
    response.begin()
    return response


def _read(response: HTTPResponse, limit: int, seconds: float) -> Response:
    if response.getheader("Content-Encoding", "identity").lower() != "identity":
        raise OutboundError("The server responded in an encoding that was not requested.")
    body = bytearray()
    problem: OutboundError | None = None
    try:
        # Piece by piece, and not by the length in a header, which would allocate that much memory at once.
        with _outbound_errors(seconds):
            while len(body) <= limit and (piece := response.read(min(PIECE, limit + 1 - len(body)))):
                body += piece
            if len(body) > limit:
                raise TooLong(f"The response has more than {limit:,} bytes.")
            if response.length:
                raise http.client.IncompleteRead(b"")
    except OutboundError as error:
        problem = error
    return Response(response.status, response.headers, bytes(memoryview(body)[:limit]), problem)


def _open_tunnel(connection: socket.socket, end: float, to: SplitResult, proxy: SplitResult) -> None:
    host = f"[{to.hostname}]" if ":" in (to.hostname or "") else to.hostname
    target = f"{host}:{_port(to)}"
    headers = {"Host": target}
    if proxy.username is not None:
        pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    status = _exchange(_BoundedStream(connection, end, HEAD_LIMIT), "CONNECT", target, None, headers).status
    if status != http.client.OK:
        raise OutboundError(f"The proxy responded with status {status}.")
