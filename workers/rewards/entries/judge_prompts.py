"""Shared parts of rewards that ask a judge: its server's parameters and the fenced texts of its prompt."""

import json
import re
from typing import Any

from workers.rewards.entries.judge_client import JudgeClient
from workers.rewards.parameters import Params
from workers.rewards.tools import Endpoint, Tools

LONGEST_SENT = 100_000
"""Characters of each inserted text; the rest is cut, and a note tells the judge."""


class ServerParams(Params):
    """Base of the parameters of rewards that ask a judge. Each reward declares these as fields of its own."""

    endpoint: str
    """The server's name on the secrets page."""
    model: str
    concurrency: int
    timeout_s: float
    batch_s: float
    temperature: float
    """Negative: the server's default."""
    max_tokens: int
    """0: the server's default."""

    def server_problem(self) -> str | None:
        if not re.fullmatch(r"[A-Z0-9_]{1,40}", self.endpoint):
            return "endpoint: choose a server of the secrets page"
        return None if self.model.strip() else "model: say which model of the server judges"

    def client(self, endpoint: Endpoint, tools: Tools) -> JudgeClient:
        return JudgeClient(
            endpoint,
            concurrency=self.concurrency,
            timeout_s=self.timeout_s,
            batch_s=self.batch_s,
            slots=tools.slots(self, self.concurrency),
        )

    def request(self, system: str, instruction: str) -> bytes:
        """Return the JSON body of a chat completion request."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": instruction}],
            "stream": False,
        }
        if self.temperature >= 0:
            body["temperature"] = self.temperature
        if self.max_tokens:
            body["max_tokens"] = self.max_tokens
        return json.dumps(body).encode()


def fenced(name: str, text: str, mark: str) -> str:
    """Put a text between two lines that hold `mark`, which the text's author can't know."""
    cut = text if len(text) <= LONGEST_SENT else f"{text[:LONGEST_SENT]}\n[the rest is left out]"
    return f"[begin {name} {mark}]\n{cut}\n[end {name} {mark}]"


def prompt_text(prompt: Any) -> str:
    if not isinstance(prompt, list | tuple):
        return plain(prompt)
    return "\n".join(f"{turn.get('role')}: {plain(turn.get('content'))}" for turn in prompt if isinstance(turn, dict))


def plain(value: Any) -> str:
    return "" if value is None else str(value)
