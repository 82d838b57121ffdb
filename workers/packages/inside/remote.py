"""OpenEnv's generic client as a program for many concurrent sessions, with a JSON object per line of stdin and stdout.

    {"id", "do": "open", "session", "address", "key", "ips", "seconds"}
    {"id", "do": "reset" | "tools" | "call" | "say" | "close", "session", ..., "seconds"}

Responses are {"id", "ok": {...}} or {"id", "error": sentence, "kind": "timeout" | "gone" | "raised"}, in any order.
Output of the package itself doesn't reach stdout. The program ends when its stdin is closed. `ips`: the only addresses
that may be used for the host; null for those that a DNS lookup returns.
"""

import asyncio
import importlib.util
import json
import os
import socket
import sys
import types
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_TEXT_LENGTH = 200_000
_NOT_SHOWN = ("reward", "done", "metadata")
_EMPTY: tuple[Any, ...] = (None, "", [], {})


class _PinnedLoop(asyncio.SelectorEventLoop):
    """An event loop that connects only to the sessions' hosts, and only at their pinned addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.pinned: dict[str, list[str] | None] = {}
        self.allowed_ips: set[str] = set()
        """IP addresses to which connections may be opened."""

    def pin(self, host: str, ips: list[str] | None) -> None:
        self.pinned[host] = ips
        self.allowed_ips.update([host] if ips is None else [host, *ips])  # a host may be written as an IP address

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        ips = self.pinned.get(str(host), [])
        addresses: list[Any] = []
        for ip in [host] if ips is None else ips:
            addresses += await super().getaddrinfo(ip, port, **options)
        if not addresses:
            raise OSError(f"No request is sent to {host}.")
        self.allowed_ips.update(str(address[0]) for *_, address in addresses)
        return addresses

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        # The address of a redirect or proxy may be an IP address, which asyncio uses without a lookup.
        if address[0] not in self.allowed_ips:
            raise OSError(f"No request is sent to {address[0]}.")
        await super().sock_connect(sock, address)


class _Session:
    def __init__(self, request: Mapping[str, Any]) -> None:
        GenericEnvClient = _client_class()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _PinnedLoop)  # noqa: S101  # `main` runs this program in one
        loop.pin(urlsplit(request["address"]).hostname or "", request.get("ips"))
        headers = {"Authorization": f"Bearer {request['key']}"} if request.get("key") else None
        self._client = GenericEnvClient(
            request["address"],
            connect_timeout_s=request["seconds"],
            message_timeout_s=86_400.0,  # each request has its own time-out
            max_message_size_mb=MAX_MESSAGE_BYTES / 2**20,
            headers=headers,
        )
        self._connection: Any = None

    async def open(self) -> dict[str, Any]:
        await self._client.connect()
        self._connection = self._client._ws
        return {}

    def check_connection(self) -> None:
        """Raise ConnectionError if the connection was lost, since the client would reconnect without an episode."""
        present = self._client._ws
        if present is None or present is not self._connection or present.state.name != "OPEN":
            raise ConnectionError("The connection was lost.")

    async def reset(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return _step_result(await self._client.reset(**request["arguments"]))

    async def tools(self) -> dict[str, Any]:
        try:
            result = await self._client.step({"type": "list_tools"})
        except RuntimeError:  # a server without tools doesn't know the action
            return {"tools": []}
        listed = result.observation.get("tools") if isinstance(result.observation, dict) else None
        return {"tools": [_tool(tool) for tool in listed or [] if isinstance(tool, dict)]}

    async def call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        action = {"type": "call_tool", "tool_name": request["name"], "arguments": request["arguments"]}
        return _step_result(await self._client.step(action))

    async def say(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return _step_result(await self._client.step({request["field"]: request["text"]}))

    async def close(self) -> dict[str, Any]:
        await self._client.close()
        return {}


def _client_class() -> Any:
    """Import the client's class without its package, which would import the server and take half a minute."""
    for name in ("openenv", "openenv.core"):
        if name not in sys.modules:
            spec = importlib.util.find_spec(name)
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = list(spec.submodule_search_locations or ()) if spec else []
    from openenv.core.generic_client import GenericEnvClient

    return GenericEnvClient


class _Program:
    def __init__(self, out: int) -> None:
        self._out = out
        self._sessions: dict[int, _Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            task = loop.create_task(self._respond(json.loads(line)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _respond(self, request: dict[str, Any]) -> None:
        try:
            response: dict[str, Any] = {"ok": await asyncio.wait_for(self._do(request), request["seconds"])}
        except TimeoutError:
            response = {"error": f"It didn't respond within {request['seconds']:.3g} s.", "kind": "timeout"}
        except OSError as error:  # ConnectionError too
            response = {"error": _sentence(error, request), "kind": "gone"}
        except Exception as error:
            is_gone = type(error).__module__.startswith("websockets")
            response = {"error": _sentence(error, request), "kind": "gone" if is_gone else "raised"}
        line = json.dumps({"id": request["id"], **response}).encode() + b"\n"
        while line:  # a pipe may accept only a part
            line = line[os.write(self._out, line) :]

    async def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        number, action = request["session"], request["do"]
        if action == "open":
            self._sessions[number] = _Session(request)
            return await self._sessions[number].open()
        if action == "close":
            session = self._sessions.pop(number, None)
            return await session.close() if session else {}
        session = self._sessions.get(number)
        if session is None:
            raise ConnectionError("The session is gone.")
        session.check_connection()
        if action == "tools":
            return await session.tools()
        return await {"reset": session.reset, "call": session.call, "say": session.say}[action](request)


def _step_result(result: Any) -> dict[str, Any]:
    observation = result.observation if isinstance(result.observation, dict) else {"result": result.observation}
    reward = result.reward if isinstance(result.reward, int | float) else None
    step = {"reward": reward, "done": bool(result.done), "error": ""}
    if error := observation.get("error"):
        step["error"] = str(error.get("message", error) if isinstance(error, dict) else error)[:MAX_TEXT_LENGTH]
    return step | {"text": _text(observation)[:MAX_TEXT_LENGTH]}


def _text(observation: Mapping[str, Any]) -> str:
    """Return an observation as text for a model: a tool's result, its only string, or all of it as JSON."""
    if "tool_name" in observation:
        return _result(observation.get("result"))
    shown_fields = {
        name: value for name, value in observation.items() if name not in _NOT_SHOWN and value not in _EMPTY
    }
    values = list(shown_fields.values())
    if not values:
        return ""
    return values[0] if len(values) == 1 and isinstance(values[0], str) else _json(shown_fields)


def _result(result: Any) -> str:
    if isinstance(result, dict):
        content = result.get("content")
        if isinstance(content, list) and content and all(isinstance(part, dict) and "text" in part for part in content):
            return "\n".join(str(part["text"]) for part in content)
        if result.get("data") is not None:
            return _result(result["data"])
    return result if isinstance(result, str) else "" if result is None else _json(result)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("input_schema") or tool.get("inputSchema") or {}
    return {"name": str(tool.get("name", "")), "description": str(tool.get("description", "")), "parameters": schema}


def _sentence(error: Exception, request: Mapping[str, Any]) -> str:
    message = " ".join(str(error).split())[:500] or type(error).__name__
    return message.replace(request["key"], "[key]") if request.get("key") else message


def main() -> None:
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    socket.setdefaulttimeout(None)
    with asyncio.Runner(loop_factory=_PinnedLoop) as runner:
        runner.run(_Program(out).serve())


if __name__ == "__main__":
    main()
