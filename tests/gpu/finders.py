"""Agents of a gateway that look letters up: `KEY=… python -m tests.gpu.finders URL TABLE`, until the run has ended.

TABLE is JSON, letter to digit. Each agent asks the model with its own tool, answers the call, asks again, and says what
the answer was worth.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from typing import Any

import httpx
from openai import APIError, OpenAI

AGENTS = 64
ENDED = 410
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Look a letter up.",
        "parameters": {"type": "object", "properties": {"letter": {"type": "string"}}, "required": ["letter"]},
    },
}


def main(url: str, table: dict[str, str]) -> None:
    model = OpenAI(base_url=f"{url}/v1", api_key=os.environ["KEY"], http_client=httpx.Client(trust_env=False))
    agents = [threading.Thread(target=work, args=(url, table, model)) for _ in range(AGENTS)]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()


def work(url: str, table: dict[str, str], model: OpenAI) -> None:
    headers = {"Authorization": f"Bearer {os.environ['KEY']}"}
    gate = httpx.Client(base_url=url, headers=headers, timeout=120, trust_env=False)
    with gate, contextlib.suppress(httpx.TransportError, APIError):  # the run may end in the middle of a session
        while (answer := gate.post("/v1/sessions")).status_code != ENDED:
            if answer.status_code == httpx.codes.OK:
                session(gate, answer.json(), table, model)


def session(gate: httpx.Client, task: dict[str, Any], table: dict[str, str], model: OpenAI) -> None:
    messages: list[Any] = list(task["messages"])
    letter = messages[-1]["content"].removeprefix("Find ").removesuffix(".")
    asking = model.with_options(base_url=task["base_url"]).chat.completions
    said = asking.create(model=task["model"], messages=messages, tools=[TOOL]).choices[0].message
    if said.tool_calls:
        messages.append(said.model_dump(exclude_none=True))
        for call in said.tool_calls:
            found = table.get(asked(call), "There is nothing.")
            messages.append({"role": "tool", "tool_call_id": call.id, "name": "find", "content": found})
        said = asking.create(model=task["model"], messages=messages, tools=[TOOL]).choices[0].message
    right = f"<answer>{table[letter]}</answer>" in (said.content or "")
    gate.post(f"/s/{task['id']}/end", json={"reward": float(right and len(messages) > 1)})


def asked(call: Any) -> str:
    try:
        return str(json.loads(call.function.arguments).get("letter"))
    except (ValueError, AttributeError):
        return ""


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
