"""OpenEnv's generic client as a program: one JSON object a line on stdin, one on stdout, many sessions at once.

    {"id", "do": "open", "session", "address", "key", "ips", "seconds"}
    {"id", "do": "reset" | "tools" | "call" | "say" | "close", "session", ..., "seconds"}

answers {"id", "ok": {...}} or {"id", "error": words, "kind": "timeout" | "gone" | "raised"}, in any order. Nothing that
the package prints reaches stdout. The program ends with its stdin. `ips`: the only addresses that the host may stand
for; null: whatever it is looked up as.
"""

from __future__ import annotations

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

LONGEST = 4 * 1024 * 1024
"""Bytes of one message from a server."""
LONGEST_TEXT = 200_000
_NOT_SAID = ("reward", "done", "metadata")


class _Loop(asyncio.SelectorEventLoop):
    """Looks up the hosts of sessions alone, as far as they are pinned."""

    pinned: dict[str, list[str] | None] = {}

    async def getaddrinfo(self, host: Any, port: Any, **more: Any) -> Any:
        ips = self.pinned.get(str(host), [])
        if ips is None:
            return await super().getaddrinfo(host, port, **more)
        found = [entry for ip in ips for entry in await super().getaddrinfo(ip, port, **more)]
        if not found:
            raise OSError(f"Nothing is sent to {host}.")
        return found


class _Session:
    def __init__(self, asked: Mapping[str, Any]) -> None:
        GenericEnvClient = _client_class()
        _Loop.pinned[urlsplit(asked["address"]).hostname or ""] = asked.get("ips")
        headers = {"Authorization": f"Bearer {asked['key']}"} if asked.get("key") else None
        self._client = GenericEnvClient(
            asked["address"],
            connect_timeout_s=asked["seconds"],
            message_timeout_s=86_400.0,  # each request has its own
            max_message_size_mb=LONGEST / 2**20,
            headers=headers,
        )
        self._connection: Any = None

    async def open(self) -> dict[str, Any]:
        await self._client.connect()
        self._connection = self._client._ws
        return {}

    def still(self) -> None:
        """The client would connect again by itself, to an episode that has not begun. Raises ConnectionError."""
        now = self._client._ws
        if now is None or now is not self._connection or now.state.name != "OPEN":
            raise ConnectionError("The connection was lost.")

    async def reset(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return _told(await self._client.reset(**asked["arguments"]))

    async def tools(self) -> dict[str, Any]:
        try:
            result = await self._client.step({"type": "list_tools"})
        except RuntimeError:  # a server without tools doesn't know the action
            return {"tools": []}
        listed = result.observation.get("tools") if isinstance(result.observation, dict) else None
        return {"tools": [_tool(one) for one in listed or [] if isinstance(one, dict)]}

    async def call(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        action = {"type": "call_tool", "tool_name": asked["name"], "arguments": asked["arguments"]}
        return _told(await self._client.step(action))

    async def say(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return _told(await self._client.step({asked["field"]: asked["text"]}))

    async def close(self) -> dict[str, Any]:
        await self._client.close()
        return {}


def _client_class() -> Any:
    """The client alone: its package would import the server's side too, with a web stack that takes half a minute."""
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
        reader = asyncio.StreamReader(limit=LONGEST)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            task = loop.create_task(self._answer(json.loads(line)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, asked: dict[str, Any]) -> None:
        try:
            answer: dict[str, Any] = {"ok": await asyncio.wait_for(self._do(asked), asked["seconds"])}
        except TimeoutError:
            answer = {"error": f"It didn't answer within {asked['seconds']:.3g} s.", "kind": "timeout"}
        except OSError as error:  # ConnectionError too
            answer = {"error": _words(error, asked), "kind": "gone"}
        except Exception as error:
            gone = type(error).__module__.startswith("websockets")
            answer = {"error": _words(error, asked), "kind": "gone" if gone else "raised"}
        line = json.dumps({"id": asked["id"], **answer}).encode() + b"\n"
        while line:  # a pipe takes what it has room for
            line = line[os.write(self._out, line) :]

    async def _do(self, asked: dict[str, Any]) -> dict[str, Any]:
        number, what = asked["session"], asked["do"]
        if what == "open":
            self._sessions[number] = _Session(asked)
            return await self._sessions[number].open()
        if what == "close":
            session = self._sessions.pop(number, None)
            return await session.close() if session else {}
        session = self._sessions.get(number)
        if session is None:
            raise ConnectionError("The session is gone.")
        session.still()
        if what == "tools":
            return await session.tools()
        return await {"reset": session.reset, "call": session.call, "say": session.say}[what](asked)


def _told(result: Any) -> dict[str, Any]:
    """{"text", "error", "reward", "done"} of a step."""
    seen = result.observation if isinstance(result.observation, dict) else {"result": result.observation}
    reward = result.reward if isinstance(result.reward, int | float) else None
    told = {"reward": reward, "done": bool(result.done), "error": ""}
    if error := seen.get("error"):
        told["error"] = str(error.get("message", error) if isinstance(error, dict) else error)[:LONGEST_TEXT]
    return told | {"text": _text(seen)[:LONGEST_TEXT]}


def _text(seen: Mapping[str, Any]) -> str:
    """What a model can read of an observation: a tool's result, a single text, or all of it as JSON."""
    if "tool_name" in seen:
        return _result(seen.get("result"))
    said = {name: value for name, value in seen.items() if name not in _NOT_SAID and value not in (None, "", [], {})}
    values = list(said.values())
    if not values:
        return ""
    return values[0] if len(values) == 1 and isinstance(values[0], str) else _json(said)


def _result(result: Any) -> str:
    if isinstance(result, dict):
        content = result.get("content")
        if isinstance(content, list) and content and all(isinstance(one, dict) and "text" in one for one in content):
            return "\n".join(str(one["text"]) for one in content)
        if result.get("data") is not None:
            return _result(result["data"])
    return result if isinstance(result, str) else "" if result is None else _json(result)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _tool(told: Mapping[str, Any]) -> dict[str, Any]:
    schema = told.get("input_schema") or told.get("inputSchema") or {}
    return {"name": str(told.get("name", "")), "description": str(told.get("description", "")), "parameters": schema}


def _words(error: Exception, asked: Mapping[str, Any]) -> str:
    text = " ".join(str(error).split())[:500] or type(error).__name__
    return text.replace(asked["key"], "[key]") if asked.get("key") else text


def main() -> None:
    out = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    socket.setdefaulttimeout(None)
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(_Program(out).serve())


if __name__ == "__main__":
    main()
