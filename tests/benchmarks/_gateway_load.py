"""Programs of the gateway's measure, in the trainer's interpreter: a stand-in server, the gateway, and the load.

python _gateway_load.py server|gateway|load ARGUMENTS
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from typing import Any

import aiohttp
from aiohttp import web

KEY = "sk-bench"
MESSAGES = [{"role": "user", "content": "What is 17 + 25? Think, then answer."}]


def serve(port: int, answer_s: float) -> None:
    """Answers as vLLM does, after a time that never changes."""

    async def completions(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(answer_s)
        ids = list(range(10, 74))
        logprobs = {"token_logprobs": [-1.0] * len(ids)}
        choice = {"index": 0, "text": "x", "token_ids": ids, "logprobs": logprobs, "finish_reason": "length"}
        return web.json_response({"id": "1", "object": "text_completion", "model": "m", "choices": [choice]})

    async def health(_request: web.Request) -> web.Response:
        return web.json_response({})

    app = web.Application()
    app.add_routes([web.post("/v1/completions", completions), web.get("/health", health)])
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


def gate(port: int, server: int, model: str, agents: int) -> None:
    from transformers import AutoTokenizer

    from workers.trainer.gateway.conversing import Conversing
    from workers.trainer.gateway.endpoint import AgentEndpoint
    from workers.trainer.gateway.engine import PolicyServers
    from workers.trainer.gateway.sessions import AgentTask, SessionManager

    manager = SessionManager(session_s=600)
    conversing = Conversing(AutoTokenizer.from_pretrained(model), "", {}, max_tokens=64, count_outputs=True)
    conversing.chat()
    engine = PolicyServers([(f"http://127.0.0.1:{server}", lambda: "m")], {"temperature": 1.0}, seconds=60)
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    endpoint = AgentEndpoint(manager, conversing, engine, digest=digest, shows_answer=False)
    endpoint.open("127.0.0.1", port)
    endpoint.run(manager.begin([AgentTask({"row": number}, MESSAGES) for number in range(agents)]))
    manager.done.wait()


async def load(direct: int, gateway: int, agents: int, each: int, spread_s: float) -> dict[str, list[float]]:
    """All agents ask at once, `each` times, begun over `spread_s`: first the server itself, then the gateway."""
    timeout, connector = aiohttp.ClientTimeout(total=120), aiohttp.TCPConnector(limit=0)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, headers=headers) as http:
        body = {"model": "m", "prompt": list(range(40)), "max_tokens": 64, "logprobs": 0, "return_token_ids": True}
        found = {
            "direct": await _round(http, [f"http://127.0.0.1:{direct}/v1/completions"] * agents, body, each, spread_s)
        }
        urls = []
        for _ in range(agents):
            async with http.post(f"http://127.0.0.1:{gateway}/v1/sessions") as response:
                urls.append((await response.json())["base_url"] + "/chat/completions")
        body = {"model": "m", "messages": MESSAGES, "max_tokens": 64}
        found["gateway"] = await _round(http, urls, body, each, spread_s)
        return found


async def _round(
    http: aiohttp.ClientSession, urls: list[str], body: dict[str, Any], each: int, spread_s: float
) -> list[float]:
    async def agent(url: str, after: float) -> list[float]:
        await asyncio.sleep(after)
        return [await ask(url) for _ in range(each)][1:]  # the first opens the connection

    async def ask(url: str) -> float:
        began = time.perf_counter()
        async with http.post(url, json=body) as response:
            await response.read()
            response.raise_for_status()
        return time.perf_counter() - began

    step = spread_s / len(urls)
    return [one for of in await asyncio.gather(*(agent(url, n * step) for n, url in enumerate(urls))) for one in of]


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "server":
        serve(int(arguments[0]), float(arguments[1]))
    elif what == "gateway":
        gate(int(arguments[0]), int(arguments[1]), arguments[2], int(arguments[3]))
    else:
        direct, gateway, agents, each = map(int, arguments[:4])
        print(json.dumps(asyncio.run(load(direct, gateway, agents, each, float(arguments[4])))))


if __name__ == "__main__":
    main()
