"""The agent of a person who trains it: the OpenAI package, a task at a time, and what it thinks of its answers."""

from __future__ import annotations

import httpx


def work(url: str, key: str, *, turns: int = 2) -> int:
    """Until the run has ended. Returns the number of sessions."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as gate:
        return _work(gate, key, turns)


def _work(gate: httpx.Client, key: str, turns: int) -> int:
    from openai import OpenAI  # whoever collects the tests would wait for it

    sessions = 0
    while (task := gate.post("/v1/sessions", json={"wait_s": 5})).status_code in (200, 204):
        if task.status_code == 204:
            continue
        task = task.json()
        messages = list(task["messages"])
        with OpenAI(base_url=task["base_url"], api_key=key, max_retries=0) as model:
            for _ in range(turns):
                answer = model.chat.completions.create(model=task["model"], messages=messages, max_tokens=8)
                messages += [answer.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "ok"}]
        said = "".join(str(message["content"]) for message in messages[1::2])
        gate.post(f"/s/{task['id']}/end", json={"reward": len(set(said)) / 10}).raise_for_status()
        sessions += 1
    return sessions
