"""Requests to judges: their servers' parameters, fenced texts and replies. Requests are concurrent and retried, with a
time limit for each request and for the batch.

The key is only in the request; if a server's message repeats the key, it is removed.
"""

import json
import math
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers import outbound
from workers.outbound import Disconnected, OutboundError, TimedOut
from workers.rewards.extract import right_answers
from workers.rewards.parameters import Params
from workers.rewards.reward import Row
from workers.rewards.tools import Endpoint, Tools

MAX_AT_ONCE = 64
MAX_TRIES = 3
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
MAX_ANSWER_BYTES = 2**20
MAX_SENT_CHARS = 100_000
"""Maximum number of characters of each inserted text; a longer text is truncated, with a note for the judge."""
_RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True)
class JudgeReply:
    body: bytes = b""
    trouble: str = ""
    """One sentence for people if there is no good answer; "" if there is."""
    late: bool = False


class NoScore(Exception):
    """Raised when a reply has no score. `kind`: the kind of the resulting Failure."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Busy(OutboundError):
    """Raised when the server is overloaded; the request should be retried later."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


@dataclass(frozen=True)
class JudgeClient:
    endpoint: Endpoint
    concurrency: int
    timeout_s: float
    batch_s: float
    slots: threading.Semaphore

    def answers(self, bodies: Sequence[bytes]) -> list[JudgeReply]:
        """Send each JSON body and return the replies in order, within the batch's time limit."""
        if address_problem := _problem(self.endpoint):
            return [JudgeReply(trouble=address_problem)] * len(bodies)
        deadline = time.monotonic() + self.batch_s
        late_reply = JudgeReply(trouble=f"It didn't answer within the batch's {self.batch_s:g} s.", late=True)
        replies = [late_reply] * len(bodies)
        waiting_requests = iter(enumerate(bodies))

        def work() -> None:
            for number, body in waiting_requests:  # the threads share this iterator
                if not self.slots.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    return
                try:
                    if time.monotonic() >= deadline:
                        return
                    replies[number] = self._answer(body, deadline)
                finally:
                    self.slots.release()

        # Daemon threads, so that interrupting a batch doesn't wait for them.
        names = (f"ask-{number}" for number in range(min(self.concurrency, len(bodies))))
        threads = [threading.Thread(target=work, name=name, daemon=True) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return list(replies)

    def _answer(self, body: bytes, deadline: float) -> JudgeReply:
        for attempt in range(1, MAX_TRIES + 1):
            pause = FIRST_PAUSE_S * 2 ** (attempt - 1)
            try:
                return JudgeReply(self._once(body, min(self.timeout_s, deadline - time.monotonic())))
            except TimedOut:
                return JudgeReply(trouble=f"It didn't answer within {self.timeout_s:g} s.", late=True)
            except OutboundError as error:
                message, is_temporary = str(error)[:300], isinstance(error, Disconnected | _Busy)
                pause = min(max(getattr(error, "wait_s", 0.0), pause), MAX_PAUSE_S)
            except Exception as error:  # if the thread died, nobody would learn why the row has no score
                message, is_temporary = f"The request failed: {type(error).__name__}.", False
            if not is_temporary or attempt == MAX_TRIES or time.monotonic() + pause >= deadline:
                return JudgeReply(trouble=message)
            time.sleep(pause)
        raise AssertionError("the last try returns")

    def _once(self, body: bytes, seconds: float) -> bytes:
        key = self.endpoint.key
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "grpo-trainer"}
        response = outbound.send(
            "POST",
            self.endpoint.address.rstrip("/") + "/chat/completions",
            body=body,
            headers=headers | ({"Authorization": f"Bearer {key}"} if key else {}),
            seconds=seconds,
            limit=MAX_ANSWER_BYTES,
            rule=self.endpoint.refusal,
        )
        if response.status == 200:
            return response.whole()
        if 300 <= response.status < 400:
            raise OutboundError(f"It answered {response.status}: redirects are not followed.")
        body_text = " ".join(response.start[:4_000].decode(errors="replace").split())
        message = f"It answered {response.status}: {body_text.replace(key, '[key]') if key else body_text}"
        if response.status in _RETRIED_STATUSES:
            raise _Busy(message, _retry_after_s(response.headers.get("Retry-After", "")))
        raise OutboundError(message)


def _problem(endpoint: Endpoint) -> str:
    """Return why the endpoint can't be used, without revealing its key, or "" if it can be used."""
    if why := outbound.problem(endpoint.address):
        return f"The endpoint's address can't be used. {why}"
    if set(endpoint.address) & set("?#"):
        return "The endpoint's address must not contain ? or #."
    if not (endpoint.key.isascii() and endpoint.key.isprintable() and " " not in endpoint.key):
        return "The endpoint's key contains characters that an HTTP header can't contain."
    return ""


def _retry_after_s(header_value: str) -> float:
    try:
        seconds = float(header_value)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def reply_text(reply: JudgeReply, key: str) -> str:
    """Return the text of a judge's reply, without the key if the server repeated it. Raises NoScore if there is no
    text."""
    if reply.trouble:
        raise NoScore("timeout" if reply.late else "http", reply.trouble)
    try:
        content = json.loads(reply.body)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise NoScore("http", "Its answer is not a chat completion.") from None
    if not isinstance(content, str) or not content.strip():
        raise NoScore("not_a_number", "It answered with no text; max_tokens may be too low for it.")
    return content.replace(key, "[key]") if key else content


class ServerParams(Params):
    """Base class of the parameters of judge rewards. Each reward declares these fields itself."""

    endpoint: str
    model: str
    concurrency: int
    timeout_s: float
    batch_s: float
    temperature: float
    """The sampling temperature; the server's default if negative."""
    max_tokens: int
    """The maximum number of tokens of an answer; the server's default if 0."""

    def client(self, endpoint: Endpoint, tools: Tools) -> JudgeClient:
        slots = tools.slots(self, self.concurrency)
        return JudgeClient(endpoint, self.concurrency, self.timeout_s, self.batch_s, slots)

    def request(self, system: str, instruction: str) -> bytes:
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


def model_problem(name: str) -> str:
    return "" if name.strip() else "enter the name of the judge's model"


def fence(name: str, text: str, mark: str) -> str:
    """Return a text, truncated if it is too long, between two lines with `mark`, which its author can't know."""
    shortened = text if len(text) <= MAX_SENT_CHARS else f"{text[:MAX_SENT_CHARS]}\n[the rest is left out]"
    return f"[begin {name} {mark}]\n{shortened}\n[end {name} {mark}]"


def fill_template(template: str, row: Row, mark: str, **texts: str) -> str:
    """Return a template with fenced texts in place of {prompt}, {answer} and the names of `texts`."""
    texts |= {"prompt": _prompt_text(row.get("prompt")), "answer": " or: ".join(right_answers(row))}
    return re.sub(rf"\{{({'|'.join(texts)})\}}", lambda match: fence(match[1], texts[match[1]], mark), template)


def _prompt_text(prompt: Any) -> str:
    if not isinstance(prompt, list | tuple):
        return plain(prompt)
    return "\n".join(f"{turn.get('role')}: {plain(turn.get('content'))}" for turn in prompt if isinstance(turn, dict))


def plain(value: Any) -> str:
    return "" if value is None else str(value)
