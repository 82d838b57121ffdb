"""Answers by the run's own vLLM server: an adapter and its base, or a checkpoint's weights alone.

The prompt's tokens are made here, so a model without a chat template and a prompt that is too long are treated as by
transformers.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from transformers import AutoConfig, AutoTokenizer

from workers.contract.reports.chat import BASE, TRAINED, Finish
from workers.contract.run.spec import servers_of
from workers.contract.stack.commands import served_name
from workers.trainer.configuration.spec import SpecError
from workers.trainer.jobs import Job
from workers.trainer.jobs.asking import Answered, Asked, AskError, Room, Scored, prompt_ids, room_for
from workers.trainer.rollouts.vllmclient import AdapterClient

AT_ONCE = 16
SILENCE_S = 120.0
"""Between two tokens; the first request to a cold server compiles kernels."""


class VllmEngine:
    name = "vLLM"
    at_once = AT_ONCE

    def __init__(self, job: Job) -> None:
        place = servers_of(job.spec)[0]
        self._address = urlsplit(place.address)
        server, served = job.spec.run.hardware.server, served_name(job.spec, place)
        self._served = {TRAINED: served}
        if job.is_adapter:
            timeout = float(server.request_timeout_s) if server else SILENCE_S
            client = AdapterClient(place.address, served, request_timeout_s=timeout, adapters=TRAINED)
            client.check()
            client.use_adapter(TRAINED, job.checkpoint)
            self._served = {TRAINED: TRAINED, BASE: served}
        self.models = tuple(self._served)
        own = (job.checkpoint / "tokenizer_config.json").is_file()
        try:
            where = str(job.checkpoint) if own else job.base
            self._tokenizer: Any = AutoTokenizer.from_pretrained(where)
            longest = AutoConfig.from_pretrained(job.base).get_text_config().max_position_embeddings
        except (OSError, ValueError, AttributeError) as error:
            raise SpecError(f"The model's tokenizer or config can't be read: {error}") from error
        self.template = bool(self._tokenizer.chat_template)
        self.context = min(filter(None, (server.max_model_len if server else None, longest)), default=None)
        self._room = Room(self.at_once)

    def turn(self, ended: Callable[[], object]) -> contextlib.AbstractContextManager[None]:
        return self._room.turn(ended)

    def answer(self, asked: Asked, tell: Callable[[str], None], ended: Callable[[], bool]) -> Answered:
        ids = prompt_ids(self._tokenizer, asked)
        sampling = asked.sampling
        request = {
            "model": self._served[asked.ask.model],
            "prompt": ids,
            "max_tokens": room_for(len(ids), self.context, sampling.max_tokens),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"stop": list(asked.stop)} if asked.stop else {}),
        }
        finish, tokens = Finish.STOPPED, 0
        with contextlib.closing(self._events(request)) as events:
            for event in events:
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
                for choice in event.get("choices") or ():
                    tokens += 1
                    tell(str(choice.get("text") or ""))
                    if choice.get("finish_reason"):
                        finish = Finish.LENGTH if choice["finish_reason"] == "length" else Finish.STOP
                if ended():
                    break  # vLLM ends a generation when its client hangs up
        return Answered(finish, tokens, len(ids))

    def answers(self, asked: Sequence[Asked], ended: Callable[[], bool]) -> list[tuple[str, Answered]]:
        found = []
        for each in asked:
            pieces: list[str] = []
            done = self.answer(each, pieces.append, ended)
            found.append(("".join(pieces), done))
        return found

    def score(self, asked: Sequence[Asked], top: int, ended: Callable[[], bool]) -> list[Scored]:
        prompts = [prompt_ids(self._tokenizer, each) for each in asked]
        further = any(each.sampling.max_tokens for each in asked)
        for ids in prompts:
            room_for(len(ids), self.context, 1)
        request = {
            "model": self._served[asked[0].ask.model],
            "prompt": prompts,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": top,
            "echo": True,
        }
        with self._answered(request) as response:
            choices = json.loads(response.read())["choices"]
        found = [each["logprobs"] for each in sorted(choices, key=lambda each: int(each["index"]))]
        return [_scored(each, len(ids), further) for each, ids in zip(found, prompts, strict=True)]

    def _events(self, request: dict[str, Any]) -> Generator[dict[str, Any]]:
        """The parts of a streamed answer."""
        with self._answered(request) as response:
            for line in response:
                data = line.decode(errors="replace").removeprefix("data:").strip()
                if data == "[DONE]":
                    return
                if data.startswith("{"):
                    yield json.loads(data)

    @contextlib.contextmanager
    def _answered(self, request: dict[str, Any]) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=SILENCE_S)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", body=json.dumps(request).encode(), headers=headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                text = response.read(2000).decode(errors="replace")
                raise AskError(f"The vLLM server refused this ({response.status}): {' '.join(text.split())[:300]}")
            yield response
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            raise AskError(f"The vLLM server broke off: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def close(self) -> None:
        self._served.clear()


def _scored(found: dict[str, Any], prompt: int, further: bool) -> Scored:
    """Of `logprobs` in vLLM's answer, which ends with a token that the prompt, of so many tokens, doesn't have."""
    count = prompt + further
    tops = (None if top is None else dict(top) for top in found["top_logprobs"][:count])
    return Scored(tuple(found["tokens"][:count]), tuple(found["token_logprobs"][:count]), tuple(tops), further)
