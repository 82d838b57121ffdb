"""Parts of the rollouts that need the trainer's interpreter and no training."""

from __future__ import annotations

import pytest

from tests.trainer.preloaded import Preloaded

pytestmark = pytest.mark.trainer

NEAR_THE_END = """
from workers.trainer.episodes.generation import TurnRequest, calls
wanted = [TurnRequest([1], 100, 500), TurnRequest([1], 30, 30), TurnRequest([1], 20, 60), TurnRequest([1], 5, 100)]
assert calls(wanted) == [([0, 3], 100), ([1, 2], 30)], calls(wanted)
assert calls(wanted[:1]) == [([0], 100)]
"""
ODD_TEXTS = """
from workers.trainer import tiny
from workers.trainer.episodes import templates
tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {"a": {}}}}}]
tokenizer = tiny.make_tokenizer()
chat = templates.choose(tokenizer, "", tools, game=True, arguments={})
before = chat.prompt_ids([{"role": "user", "content": "b"}])
texts = ("<tool_call>" + "[" * 3000 + "</tool_call>", "<tool_call>{}</tool_call>", "<tool_call>3</tool_call>", "",
         '<tool_call>{"name": 3, "arguments": {}}</tool_call>', '<tool_call>{"name": "find", "arg', "</tool_call>")
for text in texts:
    ids = tokenizer(text)["input_ids"]
    message = chat.parse(ids, before)
    assert message["role"] == "assistant" and "tool_calls" not in message, message
    assert chat.begins_call(ids) == text.startswith("<tool_call>"), text
assert not chat.begins_call(tokenizer("<think>a <tool_call> or none?</think>none")["input_ids"])
called = chat.parse(tokenizer('so<tool_call>{"name": "find", "arguments": "x"}</tool_call>')["input_ids"], before)
assert called["tool_calls"] == [{"type": "function", "function": {"name": "find", "arguments": "x"}}], called
listed = chat.parse(tokenizer('<tool_call>{"name": "find", "arguments": []}</tool_call>')["input_ids"], before)
assert listed["tool_calls"][0]["function"]["arguments"] == [], listed
"""
OPENINGS = """
from trl import chat_template_utils as trl
from workers.trainer import tiny
from workers.trainer.episodes.templates import _opening_of
broken = {
    "qwen3": '<tool_call>\\n{"name": ',
    "qwen3_5": '<tool_call>\\n{"name": ',
    "nemotron_3": "<tool_call><function=",
    "glm4moe": "<tool_call>",
    "llama3": '{"name": "find", "parameters": {"a": <|eot_id|>',
    "gptoss": " to=functions.find<|channel|>commentary json<|message|>{<|call|>",
    "lfm2_2_5": "<|tool_call_start|>find",
    "gemma4": "<|tool_call>find{}",
}
for name, text in broken.items():
    tokenizer = tiny.make_tokenizer()
    tokenizer.response_template = getattr(trl, f"{name}_template")
    opening = _opening_of(tokenizer)
    assert opening.search("so " + text) and not opening.search('find {"a": 1}'), name
    schema = getattr(trl, f"{name}_schema", None)
    if schema:
        tokenizer.response_template, tokenizer.response_schema = None, schema
        assert _opening_of(tokenizer).search(text) or name in ("llama3", "gptoss"), name
"""

CHANGING = """
from workers.trainer import tiny
from workers.trainer.gateway.branches import Branches
from workers.trainer.gateway.conversing import Conversing
tokenizer = tiny.make_tokenizer()
tokenizer.chat_template = (
    "{{ messages | length }}{% for message in messages %}<|im_start|>{{ message.role }}\\n{{ message.content }}"
    "<|im_end|>\\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}"
)
conversing = Conversing(tokenizer, "", {}, max_tokens=60, count_outputs=False)
conversing.check()
branches, messages = Branches(), [{"role": "user", "content": "a"}]
for answer in ("b", "cd"):
    branch, place = branches.chat(conversing.chat(), messages, "[]", frozenset())
    assert place == -1 and list(branch.prompt_ids) == conversing.chat().prompt_ids(messages), place
    spoke = {"role": "assistant", "content": answer}
    branches.add(branch.with_response(tokenizer(answer)["input_ids"], None, spoke, spoke, version=0, full=False), place)
    messages = [*messages, spoke, {"role": "user", "content": "ok"}]
assert branches.dropped == 1
assert branches.longest().turns[-1].message["content"] == "cd"
"""

HOSTILE = r"""
import asyncio, hashlib, json
import aiohttp
from workers.trainer import tiny
from workers.trainer.gateway.conversing import Conversing
from workers.trainer.gateway.endpoint import AgentEndpoint
from workers.trainer.gateway.engine import PolicyTurn
from workers.trainer.gateway.inference_api import InferenceApi
from workers.trainer.gateway.sessions import AgentTask, SessionManager
tokenizer = tiny.make_tokenizer()
reached = []

class Engine:
    version = 0
    async def complete(self, request, key):
        reached.extend(request.ids)
        return PolicyTurn([10, 11], [-1.0] * 2, False, 0)
    async def close(self): ...

conversing = Conversing(tokenizer, "", {}, max_tokens=60, count_outputs=False)
conversing.context, manager = 2048, SessionManager(session_s=600)
endpoint = AgentEndpoint(manager, conversing, Engine(), digest=hashlib.sha256(b"k").hexdigest(), shows_answer=False)
inference = InferenceApi(conversing, Engine(), longest=2048)
url = endpoint.open("127.0.0.1", 0, *endpoint.routes(), *inference.routes()[:1])
endpoint.run(manager.begin([AgentTask({"row": number}, "hi") for number in range(2)]))
asks = [{"role": "user", "content": "x"}]
calls = lambda arguments: [{"function": {"name": "f", "arguments": arguments}}]
tools = lambda *functions: {"messages": asks, "tools": [{"type": "function", "function": one} for one in functions]}
chats = [
    {"messages": [{"role": "assistant", "content": "x", "tool_calls": calls("[" * 100_000)}, *asks]},
    {"messages": [{"role": "assistant", "content": "x", "tool_calls": calls('{"a":' * 2_000)}, *asks]},
    tools({}), tools({"name": {"a": 1}}), tools({"name": "f"}), tools({"name": "f", "parameters": {"properties": 5}}),
    {"messages": [{"role": "user", "content": "\ud800"}]}, {"messages": asks, "max_tokens": -1}, {"messages": 1},
]
beyond = [[len(tokenizer)], [0, 10**9], [2**32], [2**63], [10**400], [-1], "\ud800", [[1], [2]], {"a": 1}]
rewards = [10**400, -(10**400), float("nan"), True, "1", []]

async def main():
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer k"}) as http:
        async def status(path, body):
            async with http.post(url + path, data=json.dumps(body)) as response:
                return response.status
        async with http.post(url + "/v1/sessions") as response:
            session = "/s/" + (await response.json())["id"]
        for path, bodies in (
            ("/v1/chat/completions", chats), ("/v1/completions", [{"prompt": prompt} for prompt in beyond]),
            ("/reward", [{"reward": reward} for reward in rewards]), ("/end", [{"reward": 10**400}, []]),
        ):
            for body in bodies:
                assert await status(session + path, body) == 400, (path, str(body)[:80])
        for prompt in beyond:
            for asked in (prompt, {"prompt_token_ids": prompt}):
                assert await status("/generate", {"prompt": asked}) == 400, str(prompt)[:80]
        assert reached == []
        assert await status(session + "/v1/completions", {"prompt": [0, len(tokenizer) - 1]}) == 200
        assert await status(session + "/end", {"reward": 1}) == 200

asyncio.run(main())
endpoint.close()
"""


CLOSING = """
import asyncio, json
from workers.trainer.episodes.generation import TurnRequest
from workers.trainer.gateway.engine import PolicyServers
choice = {"token_ids": [5], "logprobs": {"token_logprobs": [-1.0]}}
body = json.dumps({"choices": [choice]}).encode()
head = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body)

async def once(reader, writer):
    asked = await reader.readuntil(b"\\r\\n\\r\\n")
    length = int(asked.lower().split(b"content-length: ")[1].split(b"\\r\\n")[0])
    await reader.readexactly(length)
    writer.write(head + body)
    await writer.drain()
    await reader.read(1)  # a second request meets a connection that has just been reset
    writer.transport.abort()

async def main():
    server = await asyncio.start_server(once, "127.0.0.1", 0)
    engine = PolicyServers([(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", lambda: "m")], {}, seconds=10)
    answers = [await engine.complete(TurnRequest([1], 1, 1), "key") for _ in range(3)]
    assert [answer.ids for answer in answers] == [[5]] * 3 and engine.failure is None
    await engine.close()

asyncio.run(main())
"""


def test_a_server_that_closes_kept_connections_is_not_taken_for_gone(preloaded: Preloaded) -> None:
    preloaded.run("-c", CLOSING)


def test_a_chat_template_that_changes_earlier_messages_makes_a_branch_of_each_request(preloaded: Preloaded) -> None:
    preloaded.run("-c", CHANGING)


def test_an_agent_that_sends_anything_is_refused_and_ends_nothing(preloaded: Preloaded) -> None:
    preloaded.run("-c", HOSTILE)


def test_turns_near_the_end_of_the_context_are_asked_for_apart(preloaded: Preloaded) -> None:
    preloaded.run("-c", NEAR_THE_END)


def test_odd_texts_are_read_without_a_call(preloaded: Preloaded) -> None:
    preloaded.run("-c", ODD_TEXTS)


def test_every_family_of_templates_says_what_a_call_begins_with(preloaded: Preloaded) -> None:
    preloaded.run("-c", OPENINGS)
