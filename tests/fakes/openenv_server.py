"""A small environment server, run by the interpreter that has OpenEnv: `python openenv_server.py tools|text PORT`.

tools: `guess` (a number; rewarded and done at the seed's), `slow`, `broken`. text: answers what it is told, "end" ends
the episode, "leave" ends the server.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class Said(Observation):
    text: str = ""


class Say(Action):
    message: str


class Guessing(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("guessing")
        self.number = 0

        @server.tool
        def guess(number: int) -> str:
            """Guess the number."""
            print("noise")
            return "right" if number == self.number else "wrong"

        @server.tool
        def slow() -> str:
            """Never answers."""
            time.sleep(3600)
            return ""

        @server.tool
        def broken() -> str:
            """Always raises."""
            raise ValueError("it is broken")

        super().__init__(server)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, topic: str = "", **more: Any
    ) -> Observation:
        self.number = (seed or 0) % 10
        return Said(text=f"Guess a number about {topic}.")

    def step(self, action: Any, timeout_s: float | None = None, **more: Any) -> Observation:
        return self._scored(action, super().step(action, timeout_s, **more))

    async def step_async(self, action: Any, timeout_s: float | None = None, **more: Any) -> Observation:
        return self._scored(action, await super().step_async(action, timeout_s, **more))

    def _scored(self, action: Any, seen: Observation) -> Observation:
        if isinstance(action, CallToolAction) and isinstance(seen, CallToolObservation) and action.tool_name == "guess":
            right = action.arguments.get("number") == self.number
            seen.reward, seen.done = float(right), right
        return seen

    def _step_impl(self, action: Any, timeout_s: float | None = None, **more: Any) -> Observation:
        return Said(text="Call a tool.")

    @property
    def state(self) -> State:
        return State()


class Talking(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Observation:
        return Said(text="Talk to me.")

    def step(self, action: Any, timeout_s: float | None = None, **more: Any) -> Observation:
        if action.message == "leave":
            os._exit(0)
        done = action.message == "end"
        return Said(text=f"You said {action.message}.", reward=1.0 if done else 0.0, done=done)

    @property
    def state(self) -> State:
        return State()


if __name__ == "__main__":
    made: Any = Guessing if sys.argv[1] == "tools" else Talking
    kind: Any = CallToolAction if sys.argv[1] == "tools" else Say
    app = create_fastapi_app(made, kind, Said, max_concurrent_envs=8)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
