"""SkyPilot's API server over HTTP. It answers a request with an id at once, and with the outcome when asked for it.

Written against 0.14.1. Some of its answers hold pickled Python objects beside the JSON; those are never read.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from controlplane.platform.http import addresses
from runs.engine.machines.provider import EngineError
from workers import outbound

API_VERSION = 62
VERSION = "0.14.1"
ANSWER_BYTES = 4 * 1024 * 1024
MOST_WORDS = 400
"""Characters of what the server says."""
ACTIVE = frozenset({"PENDING", "WAITING", "RUNNING"})
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class RequestFailed(EngineError):
    """The server did what it was asked, and it failed."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind
        """The name of SkyPilot's exception."""


class NotYet(EngineError):
    """The outcome isn't there in time."""


@dataclass(frozen=True)
class SkyPilotRequest:
    """One request that the server keeps, for a day by default."""

    id: str
    name: str
    """`sky.launch`, `sky.down`."""
    status: str
    message: str

    @property
    def active(self) -> bool:
        return self.status in ACTIVE


class Server:
    """Calls that must all be over in `seconds`. Each raises EngineError."""

    def __init__(self, address: str, token: str, *, user: str, private_too: bool, seconds: float) -> None:
        self._address = address.rstrip("/")
        self._user = {"SKYPILOT_USER_ID": user, "SKYPILOT_USER": "grpo"}  # of a server that asks for no token
        self._rule = addresses.rule_for(address, private_too=private_too)
        self._end = time.monotonic() + seconds
        self._headers = {
            "Content-Type": "application/json",
            "X-SkyPilot-API-Version": str(API_VERSION),
            "X-SkyPilot-Version": VERSION,
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        self.api_version = 0
        """As the server's last answer says."""

    def submit(self, path: str, body: Mapping[str, Any]) -> str:
        """Returns the request's id."""
        answer = self._send("POST", path, {"env_vars": self._user, **body})
        _checked(answer)
        if not (request_id := answer.headers.get("X-SkyPilot-Request-ID")):
            raise EngineError("What answers at this address isn't a SkyPilot API server: it names no request.")
        return request_id

    def outcome(self, request_id: str, *, seconds: float = 30) -> Any:
        """Waits for it. Raises RequestFailed, and NotYet."""
        query = urlencode({"request_id": request_id})
        try:
            answer = self._send("GET", f"/api/get?{query}", seconds=seconds)
        except outbound.TimedOut:
            raise NotYet("The SkyPilot API server has not finished the request in time.") from None
        # A failed request is answered with 500, and with the same fields as one that went well.
        found = _fields(answer.start) if answer.status in {200, 500} else {}
        found = found.get("detail", found)
        if not isinstance(found, dict) or "status" not in found:
            _checked(answer)
            raise EngineError("The SkyPilot API server's answer can't be read.")
        if error := _fields(found.get("error")):
            raise RequestFailed(_plain(error.get("message")) or _plain(error.get("type")), str(error.get("type")))
        if found["status"] != "SUCCEEDED":
            raise RequestFailed(f"The request is {str(found['status']).lower()}.", str(found["status"]))
        return _read(found.get("return_value"))

    def requests_for(self, cluster: str) -> list[SkyPilotRequest]:
        """The newest first. Without their bodies, which hold what they were asked with."""
        fields = ("request_id", "name", "status", "status_msg", "cluster_name", "created_at")
        query = urlencode([("cluster_name", cluster), ("all_status", "true"), *(("fields", each) for each in fields)])
        answer = self._send("GET", f"/api/status?{query}")
        _checked(answer)
        found = _read(answer.start)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise EngineError("The SkyPilot API server's list of requests can't be read.")
        mine = [each for each in found if each.get("cluster_name") == cluster]
        mine.sort(key=lambda each: float(each.get("created_at") or 0), reverse=True)
        return [_request(each) for each in mine]

    def _send(self, method: str, path: str, body: Any = None, *, seconds: float = 30) -> outbound.Response:
        left = min(seconds, self._end - time.monotonic())
        try:
            answer = outbound.send(
                method,
                self._address + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=self._headers,
                seconds=max(left, 0.001),
                limit=ANSWER_BYTES,
                rule=self._rule,
            )
            answer.whole()
        except outbound.TimedOut:
            if path.startswith("/api/get"):
                raise
            raise EngineError(f"The SkyPilot API server at {self._address} doesn't answer in time.") from None
        except outbound.OutboundError as error:
            raise EngineError(f"The SkyPilot API server at {self._address} can't be asked: {error}") from None
        version = answer.headers.get("X-SkyPilot-API-Version", "")
        self.api_version = int(version) if version.isdecimal() else self.api_version
        return answer


def _request(row: Mapping[str, Any]) -> SkyPilotRequest:
    return SkyPilotRequest(
        str(row.get("request_id")), str(row.get("name")), str(row.get("status")), _plain(row.get("status_msg"))
    )


def _checked(answer: outbound.Response) -> None:
    if answer.status == 200:
        return
    if answer.status in {401, 403}:
        raise EngineError(
            f"The SkyPilot API server refuses the token ({answer.status}): {_said(answer)} An admin can enter another "
            "under Settings, Secrets."
        )
    if 300 <= answer.status < 400:
        raise EngineError(
            f"The SkyPilot API server answered {answer.status}, a redirect, which is not followed: it may want a "
            "token, or have another address."
        )
    raise EngineError(f"The SkyPilot API server answered {answer.status}: {_said(answer)}")


def _said(answer: outbound.Response) -> str:
    """Why, for people. Of a refused body only where it is wrong: the server repeats what was in it."""
    found = _fields(answer.start)
    detail = found.get("detail", found.get("message", ""))
    if isinstance(detail, list):
        detail = "; ".join(
            f"{'.'.join(str(part) for part in each.get('loc', ()))}: {each.get('msg', '')}"
            for each in detail
            if isinstance(each, dict)
        )
    return f"{_plain(detail).rstrip('.') or 'no reason given'}."


def _fields(data: Any) -> dict[str, Any]:
    found = _read(data)
    return found if isinstance(found, dict) else {}


def _read(data: Any) -> Any:
    try:
        return json.loads(data)
    except (ValueError, TypeError, RecursionError):
        return None


def _plain(text: Any) -> str:
    """In one line, without the colours for terminals."""
    if not isinstance(text, str):
        return ""
    line = " ".join(_COLOURS.sub("", text).split())
    line = "".join(letter for letter in line if letter.isprintable())
    return line if len(line) <= MOST_WORDS else line[: MOST_WORDS - 1] + "…"
