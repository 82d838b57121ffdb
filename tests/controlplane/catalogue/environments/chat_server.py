"""An OpenAI-compatible server on loopback that answers what a test has written, in order."""

from __future__ import annotations

import json
from typing import Any

from tests.workers.rewards.judge_server import Handler, JudgeServer


class _Handler(Handler):
    server: ChatServer

    def _answer(self, text: str) -> None:
        reply = self.server.replies.pop(0)
        if reply is None:
            self.server.released.wait(60)
            return None
        if isinstance(reply, int):
            return self.send(b'{"error": "this server can not take tools"}', status=reply)
        if isinstance(reply, str):
            return self.send(reply.encode())
        self.send(
            json.dumps({"choices": [{"message": {"role": "assistant", **reply}, "finish_reason": "stop"}]}).encode()
        )


class ChatServer(JudgeServer):
    """`replies`: the messages of the model; a number is a status, a text a whole body, None no answer at all."""

    def __init__(self, *replies: dict[str, Any] | int | str | None) -> None:
        super().__init__()
        self.RequestHandlerClass = _Handler
        self.replies = list(replies)


def calling(name: str, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]}
