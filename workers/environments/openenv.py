"""Environment servers that use OpenEnv's protocol, with tools or as a text game. The client runs in the interpreter of
workers.packages."""

import json
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from workers import outbound
from workers.contract.run.episodes import ToolError
from workers.environments.entry import Entry, EntryKind, EpisodeSession, Result, ToolDescription
from workers.packages.interpreter import PackageMissing
from workers.packages.process import RequestFailed
from workers.rewards.parameters import Params, param, server_param
from workers.rewards.reward import Cost
from workers.rewards.tools import Endpoint, Tools, Unavailable

MAX_TOOLS = 64
_ERRORS = {"timeout": ToolError.TIMEOUT, "gone": ToolError.UNAVAILABLE, "raised": ToolError.RAISED}
_PLACEHOLDER = re.compile(r"\{(\w{1,60})\}")


@dataclass(frozen=True)
class OpenEnvParams(Params):
    endpoint: str = server_param()
    reset: str = param(
        "{}",
        "JSON object to send when an episode begins. {answer} in a string is replaced by that column of the row. "
        "The seed is sent, too.",
        widget="json",
        longest=10_000,
    )
    connect_s: float = param(20.0, "Time limit to connect and begin an episode.", min=0.5, max=600.0)
    step_s: float = param(60.0, "Time limit of a step.", min=0.1, max=600.0)

    def problem(self) -> str | None:
        try:
            is_object = isinstance(json.loads(self.reset), dict)
        except ValueError:
            is_object = False
        return super().problem() or (None if is_object else "reset: must be a JSON object")


@dataclass(frozen=True)
class OpenEnvTextParams(OpenEnvParams):
    field: str = param("message", "Field of the server's action that contains the model's text.")


class _ServerSession(EpisodeSession):
    """A session that connects at its first request. If the client program had to be restarted, the connection is lost,
    and every request fails until the session is reset."""

    def __init__(self, params: OpenEnvParams, tools: Tools) -> None:
        self._params, self._program = params, tools.program()
        self._endpoint = tools.endpoint(params.endpoint)
        self._session = 0
        self._start = 0
        self._lost = False
        """True if the server's side of the episode is lost; only a reset connects again."""
        self._tools: list[ToolDescription] | None = None

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        if self._lost:
            self._session, self._lost = 0, False
        arguments = {"seed": seed % 2**31, **_filled(json.loads(self._params.reset), row)}
        try:
            return str(self._ask({"do": "reset", "arguments": arguments}, self._params.connect_s)["text"])
        except RequestFailed as error:
            raise Unavailable(f"The server {self._params.endpoint} did not begin an episode: {error}") from None

    def tools(self) -> list[ToolDescription]:
        if self._tools is None:
            try:
                listed = self._ask({"do": "tools"}, self._params.connect_s)["tools"]
            except RequestFailed as error:
                raise Unavailable(f"The server {self._params.endpoint} did not list its tools: {error}") from None
            if len(listed) > MAX_TOOLS:
                raise Unavailable(
                    f"The server {self._params.endpoint} has {len(listed)} tools; the limit is {MAX_TOOLS}."
                )
            self._tools = [ToolDescription(tool["name"], tool["description"], _schema(tool)) for tool in listed]
        return self._tools

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Result:
        try:
            step = self._ask({"do": "call", "name": name, "arguments": dict(arguments)}, self._time_limit(seconds))
        except RequestFailed as error:
            return Result(f"The server returned no result: {error}", _ERRORS[error.kind])
        return _result(step)

    def close(self) -> None:
        if self._session:
            with suppress(RequestFailed, PackageMissing):
                self._program.ask({"do": "close", "session": self._session}, 5.0)

    def _time_limit(self, seconds: float) -> float:
        return max(0.001, min(seconds, self._params.step_s))

    def _ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        if self._lost:
            raise RequestFailed("The connection was lost.", "gone")
        try:
            if not self._session:
                self._session, self._start = self._open_session()
            response, start = self._program.ask({**request, "session": self._session}, seconds)
        except PackageMissing as error:
            raise Unavailable(str(error)) from None
        except RequestFailed as error:
            self._lost = error.kind != "raised"
            raise
        if start != self._start:
            self._lost = True
            raise RequestFailed("The connection was lost.", "gone")
        return response

    def _open_session(self) -> tuple[int, int]:
        number, seconds = self._program.number(), self._params.connect_s
        opening = {
            "do": "open",
            "session": number,
            "address": self._endpoint.address.rstrip("/"),
            "key": self._endpoint.key,
            "ips": _allowed_ips(self._endpoint),
        }
        _, start = self._program.ask(opening, seconds)
        return number, start


class _TextServerSession(_ServerSession):
    _params: OpenEnvTextParams

    def tools(self) -> list[ToolDescription]:
        return []

    def answer(self, text: str, seconds: float) -> Result:
        try:
            step = self._ask({"do": "say", "field": self._params.field, "text": text}, self._time_limit(seconds))
        except RequestFailed as error:
            return Result(f"The server did not reply: {error}", _ERRORS[error.kind])
        return _result(step)


def _result(step: Mapping[str, Any]) -> Result:
    error = ToolError.RAISED if step["error"] else None
    return Result(step["error"] or step["text"], error, step["reward"], done=step["done"])


def _allowed_ips(endpoint: Endpoint) -> list[str] | None:
    """Return the server's IP addresses that the endpoint's rule allows, or None if it has no rule. Raises Unavailable
    if the server's address is invalid, can't be looked up or isn't allowed."""
    if reason := outbound.problem(endpoint.address):
        raise Unavailable(f"The server's address can't be used. {reason}")
    if endpoint.refusal is None:
        return None
    host = urlsplit(endpoint.address).hostname or ""
    try:
        ips = [str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError as error:
        raise Unavailable(f"{host} could not be looked up: {error.strerror}.") from None
    refusals = {ip: endpoint.refusal(ip) for ip in ips}
    allowed_ips = [ip for ip in dict.fromkeys(ips) if refusals[ip] is None]
    if not allowed_ips:
        raise Unavailable(f"No request is sent to {host}: {next(iter(refusals.values()), 'it has no address')}.")
    return allowed_ips


def _filled(value: Any, row: Mapping[str, Any]) -> Any:
    """Return a value with its placeholders replaced by the row's columns; a string that is only a placeholder becomes
    the column's value."""
    if isinstance(value, dict):
        return {name: _filled(item, row) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, row) for item in value]
    if not isinstance(value, str):
        return value
    if match := _PLACEHOLDER.fullmatch(value):
        return row.get(match[1])
    return _PLACEHOLDER.sub(lambda match: str(row.get(match[1], "")), value)


def _schema(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = tool["parameters"]
    empty_schema = {"type": "object", "properties": {}}
    return schema if isinstance(schema, dict) and schema.get("type") == "object" else empty_schema


def _open(name: str, params: OpenEnvParams, tools: Tools) -> EpisodeSession:
    return _TextServerSession(params, tools) if isinstance(params, OpenEnvTextParams) else _ServerSession(params, tools)


_TRUST_NOTE = (
    "Use only servers that you trust: they decide rewards, and the model reads their responses. An admin enters a "
    "server's address and key on the secrets page. Each episode has a separate connection, so the server must accept "
    "as many connections as there are concurrent episodes. "
)
_server_entry = partial(Entry, open=_open, cost=Cost.HTTP, package="openenv")
ENTRIES = (
    _server_entry(
        key="openenv",
        title="OpenEnv server",
        help="An environment server with OpenEnv's protocol, whose tools the model calls.",
        params=OpenEnvParams,
        kind=EntryKind.SERVER,
        use=_TRUST_NOTE + "The server itself lists its tools.",
    ),
    _server_entry(
        key="openenv_text",
        title="OpenEnv server, by text",
        help="An environment server with OpenEnv's protocol but without tools: the model's text is its action.",
        params=OpenEnvTextParams,
        kind=EntryKind.GAME,
        use=_TRUST_NOTE + "The model's text is sent as one field of the server's action.",
    ),
)
