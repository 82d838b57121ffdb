"""Long prompts of one agent don't hold up the answers to others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

CODE = """
import asyncio, threading
from workers.trainer.gateway.conversing import Conversing
from workers.trainer.gateway.engine import PolicyTurn
from workers.trainer.gateway.sessions import AgentSession, AgentTask
from workers.trainer.openai_shapes import read_agent_request

begun, may_end, threads = threading.Event(), threading.Event(), set()

class Tokenizer:
    eos_token_id = 0
    def __len__(self):
        return 300
    def __call__(self, text):
        threads.add(threading.current_thread())
        begun.set()
        if not may_end.wait(60):
            raise TimeoutError("the loop stood still")
        return {"input_ids": list(text.encode())}
    def decode(self, ids, **_):
        threads.add(threading.current_thread())
        return bytes(ids).decode()

class Engine:
    async def complete(self, request, key):
        return PolicyTurn([33], [0.0], False, 0)

async def main():
    conversing = Conversing(Tokenizer(), "", {}, max_tokens=50, count_outputs=True)
    query = read_agent_request({"prompt": "Hi"}, chat=False)
    session = AgentSession("s", AgentTask({}, ""), 0.0)
    asked = asyncio.ensure_future(conversing.respond(query, session, Engine()))
    while not begun.is_set():
        await asyncio.sleep(0)
    may_end.set()  # which the loop can only do while the text is tokenized elsewhere
    response = await asked
    print(response["choices"][0]["text"], len(session.branches.all), threading.current_thread() in threads)

asyncio.run(main())
"""


def test_a_prompt_is_tokenized_while_the_endpoint_answers_others(trainer_python: Path) -> None:
    done = subprocess.run(
        [trainer_python, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=False, timeout=240
    )
    assert (done.returncode, done.stdout.split()) == (0, ["!", "1", "False"]), done.stderr
