"""Tools of the MCP server with hostile arguments: each reaches its own operation or none."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError

from controlplane.ctl import mcp_server
from controlplane.ctl.client import Client, RequestRefused, path_of
from controlplane.ctl.config import Access

ACCESS = Access("https://plane.example", "grpo_x")
HOSTILE = (
    *("../tokens", "..", ".", "", "x/../../hosts/1", "x/stop", "%2e%2e/tokens", "x%2Fstop", "../hosts/1/stop?", "x#y"),
    *(
        "x?attempt=1",
        "//evil.example/x",
        "https://evil.example/x",
        "x\\..\\y",
        "x\r\nX-A: 1",
        "x\0",
        "\N{FULLWIDTH SOLIDUS}",
    ),
)
ACTING = {"check_run", "launch_run", "stop_run"}


class Server:
    """The tools of a token with this scope, and the paths that they ask for."""

    def __init__(self, scope: str) -> None:
        self.asked: list[str] = []
        self._scope = scope
        self.tools = mcp_server.server(Client(ACCESS, transport=httpx.MockTransport(self._answer)))
        self.asked.clear()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url.raw_path.decode().partition('?')[0]}")
        return httpx.Response(200, json={"scope": self._scope})

    def list(self) -> dict[str, dict[str, Any]]:
        return {tool.name: tool.input_schema for tool in asyncio.run(self.tools.list_tools())}

    def call(self, name: str, arguments: dict[str, Any]) -> list[str]:
        """Call a tool, and return what it asked for, or why it didn't."""
        self.asked.clear()
        try:
            asyncio.run(self.tools.call_tool(name, arguments))
        except UnexpectedToolError:
            raise
        except ToolError as refusal:
            return [str(refusal)]
        return list(self.asked)


def test_every_argument_of_every_tool_stays_within_its_operation() -> None:
    server = Server("admin")
    given = {"run_id": "rgood", "document": "{}", "name": "trainer"}
    for tool, schema in server.list().items():
        required = {name: given[name] for name in schema.get("required", [])}
        usual = server.call(tool, required)
        for name, kind in schema["properties"].items():
            for text in HOSTILE if kind.get("type") == "string" and "enum" not in kind else ():
                (asked,) = server.call(tool, {**required, name: text})
                if name == "run_id" or (tool, name) == ("get_log", "name"):
                    assert "is not an ID or a name" in asked or "%EF%BC%8F" in asked, (tool, name, text)
                else:
                    assert asked == usual[0] or "can't be written" in asked, (tool, name, text)


@pytest.mark.parametrize(("scope", "acts"), [("read", False), ("operate", True), ("admin", True)])
def test_tools_that_act_need_a_token_that_may(scope: str, acts: bool) -> None:
    assert (set(Server(scope).list()) >= ACTING) is acts
    assert (ACTING & set(Server(scope).list()) == set()) is not acts


def test_a_path_keeps_its_parts_apart() -> None:
    assert path_of("runs", "r1", "logs", "a b", 7) == "runs/r1/logs/a%20b/7"
    for text in HOSTILE[:-1]:
        with pytest.raises(RequestRefused, match="is not an ID or a name"):
            path_of("runs", text)
