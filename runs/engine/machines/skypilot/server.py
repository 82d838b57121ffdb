"""HTTP client of SkyPilot's API server, which responds at once with a request id; the outcome is fetched with that id.
Written for 0.14.1. Some responses contain pickled Python objects in addition to the JSON; those are never read."""

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
MAX_RESPONSE_BYTES = 4 * 1024 * 1024
MAX_MESSAGE = 400
ACTIVE_STATUSES = frozenset({"PENDING", "WAITING", "RUNNING"})
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class RequestFailed(EngineError):
    """The server accepted the request, but the request failed."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class RequestPending(EngineError):
    """The request did not finish in time."""


@dataclass(frozen=True)
class SkyPilotRequest:
    """A request that the server remembers, by default for a day."""

    id: str
    name: str
    """Name of the operation, such as `sky.launch` or `sky.down`."""
    status: str
    message: str

    @property
    def active(self) -> bool:
        return self.status in ACTIVE_STATUSES


class Server:
    """A client whose calls may take at most `seconds` in total. A call that fails raises EngineError."""

    def __init__(self, address: str, token: str, *, user: str, private_too: bool, seconds: float) -> None:
        self._address = address.rstrip("/")
        self._user = {"SKYPILOT_USER_ID": user, "SKYPILOT_USER": "grpo"}  # for servers without tokens
        self._rule = addresses.rule_for(address, private_too=private_too)
        self._end = time.monotonic() + seconds
        self._headers = {
            "Content-Type": "application/json",
            "X-SkyPilot-API-Version": str(API_VERSION),
            "X-SkyPilot-Version": VERSION,
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        self.api_version = 0
        """API version in the server's last response."""

    def submit(self, path: str, body: Mapping[str, Any]) -> str:
        response = self._send("POST", path, {"env_vars": self._user, **body})
        _check_status(response)
        if not (request_id := response.headers.get("X-SkyPilot-Request-ID")):
            raise EngineError("The server at this address isn't a SkyPilot API server: its response has no request id.")
        return request_id

    def outcome(self, request_id: str, *, seconds: float = 30) -> Any:
        """Wait for a request's result and return it. Raises RequestFailed if the request failed, RequestPending if it
        isn't finished after `seconds`, and EngineError for an invalid response."""
        query = urlencode({"request_id": request_id})
        try:
            response = self._send("GET", f"/api/get?{query}", seconds=seconds)
        except outbound.TimedOut:
            raise RequestPending("The SkyPilot API server did not finish the request in time.") from None
        # A failed request gets status 500, with the same fields as a successful one.
        result = _fields(response.start) if response.status in {200, 500} else {}
        result = result.get("detail", result)
        if not isinstance(result, dict) or "status" not in result:
            _check_status(response)
            raise EngineError("The SkyPilot API server sent an invalid response.")
        if error := _fields(result.get("error")):
            raise RequestFailed(_one_line(error.get("message")) or _one_line(error.get("type")), str(error.get("type")))
        if result["status"] != "SUCCEEDED":
            raise RequestFailed(f"The request's status is {str(result['status']).lower()}.", str(result["status"]))
        return _parse_json(result.get("return_value"))

    def requests_for(self, cluster: str) -> list[SkyPilotRequest]:
        """List the requests for a cluster, newest first, without their bodies, which contain secrets."""
        fields = ("request_id", "name", "status", "status_msg", "cluster_name", "created_at")
        query = urlencode([("cluster_name", cluster), ("all_status", "true"), *(("fields", name) for name in fields)])
        response = self._send("GET", f"/api/status?{query}")
        _check_status(response)
        rows = _parse_json(response.start)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise EngineError("The SkyPilot API server sent an invalid list of requests.")
        matching_rows = [row for row in rows if row.get("cluster_name") == cluster]
        matching_rows.sort(key=lambda row: float(row.get("created_at") or 0), reverse=True)
        return [
            SkyPilotRequest(
                str(row.get("request_id")),
                str(row.get("name")),
                str(row.get("status")),
                _one_line(row.get("status_msg")),
            )
            for row in matching_rows
        ]

    def _send(self, method: str, path: str, body: Any = None, *, seconds: float = 30) -> outbound.Response:
        remaining_s = min(seconds, self._end - time.monotonic())
        try:
            response = outbound.send(
                method,
                self._address + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=self._headers,
                seconds=max(remaining_s, 0.001),
                limit=MAX_RESPONSE_BYTES,
                rule=self._rule,
            )
            response.whole()
        except outbound.TimedOut:
            if path.startswith("/api/get"):
                raise
            raise EngineError(f"The SkyPilot API server at {self._address} didn't respond in time.") from None
        except outbound.OutboundError as error:
            raise EngineError(f"The SkyPilot API server at {self._address} is unreachable: {error}") from None
        version = response.headers.get("X-SkyPilot-API-Version", "")
        self.api_version = int(version) if version.isdecimal() else self.api_version
        return response


def _check_status(response: outbound.Response) -> None:
    if response.status == 200:
        return
    if response.status in {401, 403}:
        raise EngineError(
            f"The SkyPilot API server rejected the token ({response.status}): {_reason(response)} An admin can enter "
            "another one under Settings, Secrets."
        )
    if 300 <= response.status < 400:
        raise EngineError(
            f"The SkyPilot API server answered {response.status}, a redirect, which is not followed. It may need a "
            "token, or its address may be different."
        )
    raise EngineError(f"The SkyPilot API server answered {response.status}: {_reason(response)}")


def _reason(response: outbound.Response) -> str:
    """Describe why the server refused a request. For an invalid body, include only its fields' names and problems,
    since the server's response repeats the secret content."""
    fields = _fields(response.start)
    detail = fields.get("detail", fields.get("message", ""))
    if isinstance(detail, list):
        detail = "; ".join(
            f"{'.'.join(str(part) for part in problem.get('loc', ()))}: {problem.get('msg', '')}"
            for problem in detail
            if isinstance(problem, dict)
        )
    return f"{_one_line(detail).rstrip('.') or 'no reason given'}."


def _fields(data: Any) -> dict[str, Any]:
    value = _parse_json(data)
    return value if isinstance(value, dict) else {}


def _parse_json(data: Any) -> Any:
    try:
        return json.loads(data)
    except (ValueError, TypeError, RecursionError):
        return None


def _one_line(text: Any) -> str:
    """Convert a message to one line without terminal colours, truncated at MAX_MESSAGE characters."""
    if not isinstance(text, str):
        return ""
    line = " ".join(_COLOURS.sub("", text).split())
    line = "".join(letter for letter in line if letter.isprintable())
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"
