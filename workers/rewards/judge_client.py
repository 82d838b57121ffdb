"""The HTTP client for judges: concurrent requests, each and all of them within a deadline, whatever the server does.

It opens its own connections, for three reasons: the IP that is connected to is the one that was checked, a deadline
holds for bytes that drip, and redirects are not followed. No proxy is used. The key is only in the request: it is
removed from a server's message that repeats it.
"""

from __future__ import annotations

import http.client
import io
import math
import queue
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from workers.rewards.tools import Endpoint

TRIES = 3
"""Of a request that was refused for a reason that may pass."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LONGEST_ANSWER = 2**20
"""Bytes of one answer."""
MOST_IPS = 4
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True)
class JudgeRequest:
    path: str
    """What follows the endpoint's address."""
    body: bytes
    """JSON."""


@dataclass(frozen=True)
class JudgeReply:
    body: bytes = b""
    trouble: str = ""
    """One sentence for people when there is no good answer; "" when there is."""
    late: bool = False
    """It was given up because its time was over."""


class _Failed(Exception):
    """One try failed. The text is for people."""

    def __init__(self, words: str, *, again: bool = False, late: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(words)
        self.again = again
        self.late = late
        self.wait_s = wait_s


class JudgeClient:
    def __init__(self, endpoint: Endpoint, *, concurrency: int, timeout_s: float, batch_s: float) -> None:
        self._endpoint = endpoint
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._batch_s = batch_s

    def answers(self, asks: Sequence[JudgeRequest]) -> list[JudgeReply]:
        """One for each, in order, and none later than the batch's time."""
        if wrong := _problem(self._endpoint):
            return [JudgeReply(trouble=wrong)] * len(asks)
        end = time.monotonic() + self._batch_s
        waiting: queue.SimpleQueue[tuple[int, JudgeRequest]] = queue.SimpleQueue()
        for numbered in enumerate(asks):
            waiting.put(numbered)
        given: queue.SimpleQueue[tuple[int, JudgeReply]] = queue.SimpleQueue()

        def work() -> None:
            while time.monotonic() < end:
                try:
                    number, ask = waiting.get_nowait()
                except queue.Empty:
                    return
                given.put((number, self._answer(ask, end)))

        # Daemons: one that a name's look-up holds up is left behind, and keeps no process from ending.
        for number in range(min(self._concurrency, len(asks))):
            threading.Thread(target=work, name=f"ask-{number}", daemon=True).start()
        late = JudgeReply(trouble=f"The batch's time of {self._batch_s:g} s was over before it answered.", late=True)
        found = [late] * len(asks)
        for _ in asks:
            try:
                number, answer = given.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            found[number] = answer
        return found

    def _answer(self, ask: JudgeRequest, end: float) -> JudgeReply:
        for tried in range(1, TRIES + 1):
            try:
                return JudgeReply(self._once(ask, min(end, time.monotonic() + self._timeout_s)))
            except _Failed as error:
                pause = min(max(error.wait_s, FIRST_PAUSE_S * 2 ** (tried - 1)), LONGEST_PAUSE_S)
                words, late = self._hidden(str(error))[:300], error.late
                again = error.again and tried < TRIES and time.monotonic() + pause < end
            except Exception as error:  # a thread that dies would leave its row without a word
                words, late, again = f"The request failed: {type(error).__name__}.", False, False
            if not again:
                return JudgeReply(trouble=words, late=late)
            time.sleep(pause)
        raise AssertionError("the last try returns")

    def _once(self, ask: JudgeRequest, end: float) -> bytes:
        address = urlsplit(self._endpoint.address.rstrip("/") + ask.path)
        try:
            with _connected(address.hostname or "", _port(address), address.scheme, end, self._endpoint) as connection:
                connection.settimeout(_left(end))
                connection.sendall(self._request(address, ask.body))
                return _heard(connection, end)
        except TimeoutError:
            raise _Failed(f"It didn't answer within {self._timeout_s:g} s.", late=True) from None
        except ssl.SSLError as error:
            raise _Failed(f"TLS failed: {error.reason or type(error).__name__}.") from None
        except (OSError, http.client.HTTPException) as error:
            said = getattr(error, "strerror", None) or type(error).__name__
            raise _Failed(f"The connection failed: {said}.", again=True) from None

    def _request(self, address: Any, body: bytes) -> bytes:
        lines = [
            f"POST {address.path} HTTP/1.1",
            f"Host: {address.netloc.rpartition('@')[2]}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Accept: application/json",
            "Accept-Encoding: identity",
            "User-Agent: grpo-trainer",
            "Connection: close",
        ]
        if self._endpoint.key:
            lines.append(f"Authorization: Bearer {self._endpoint.key}")
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body

    def _hidden(self, words: str) -> str:
        return words.replace(self._endpoint.key, "[key]") if self._endpoint.key else words


def _problem(endpoint: Endpoint) -> str:
    """Why nothing can be asked there; never with the key in it."""
    try:
        address = urlsplit(endpoint.address)
        _port(address)
    except ValueError:
        return "The endpoint's address can't be read."
    plain = endpoint.address.isascii() and endpoint.address.isprintable() and " " not in endpoint.address
    if address.scheme not in ("http", "https") or not address.hostname or not plain:
        return "The endpoint's address is no http:// or https:// address."
    if address.query or address.fragment or "@" in address.netloc:
        return "The endpoint's address must have no name, no ? and no #."
    if not (endpoint.key.isascii() and endpoint.key.isprintable() and " " not in endpoint.key):
        return "The endpoint's key holds characters that no header carries."
    return ""


def _port(address: Any) -> int:
    return address.port or (443 if address.scheme == "https" else 80)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connected(host: str, port: int, scheme: str, end: float, endpoint: Endpoint) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise _Failed(f"The name {host} leads nowhere.", again=True) from None
    trouble: OSError | None = None
    for family, kind, protocol, _, place in found[:MOST_IPS]:
        why = endpoint.refusal(str(place[0])) if endpoint.refusal else None
        if why:
            raise _Failed(why)
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left(end))
            connection.connect(place)
            if scheme == "https":
                return ssl.create_default_context().wrap_socket(connection, server_hostname=host)
            return connection
        except TimeoutError:
            connection.close()
            raise
        except ssl.SSLError:
            connection.close()
            raise
        except OSError as error:
            connection.close()
            trouble = error
    raise trouble or OSError("no address")


class _Reading(io.RawIOBase):
    """A socket's bytes, each read within what is left of the time, and not more of them than an answer may have."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection = connection
        self._end = end
        self._room = LONGEST_ANSWER

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_left(self._end))
        count = self._connection.recv_into(buffer)
        self._room -= count
        if self._room < 0:
            raise _Failed(f"It answered with more than {LONGEST_ANSWER // 2**20} MiB.")
        return count


class _Shown:
    """As much of a socket as http.client asks for."""

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._reading)


def _heard(connection: socket.socket, end: float) -> bytes:
    shown: Any = _Shown(_Reading(connection, end))
    response = http.client.HTTPResponse(shown, method="POST")
    response.begin()
    if response.getheader("Content-Encoding", "identity").lower() != "identity":
        raise _Failed("It answered in a form that was not asked for.")
    if response.status == 200:
        return response.read(LONGEST_ANSWER)  # never what its header promises: that much would be set aside at once
    if 300 <= response.status < 400:
        raise _Failed(f"It answered {response.status}: redirects are not followed.")
    said = " ".join(response.read(4_000).decode(errors="replace").split())
    wait_s = _seconds(response.getheader("Retry-After", ""))
    raise _Failed(f"It answered {response.status}: {said}", again=response.status in _AGAIN, wait_s=wait_s)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if math.isfinite(found) and found > 0 else 0.0
