"""Generation by the run's own vLLM server: an adapter and its base, or a checkpoint's weights alone.

Prompts are tokenized here, so that missing chat templates and overlong prompts are handled as with transformers.
"""

import contextlib
import http.client
import json
from collections.abc import Callable, Generator, Iterator
from typing import Any
from urllib.parse import urlsplit

from transformers import AutoConfig, AutoTokenizer

from workers.contract.reports.chat import BASE, TRAINED, Finish
from workers.contract.run.spec import servers_of
from workers.contract.stack.commands import served_name
from workers.trainer.configuration.spec import SpecError
from workers.trainer.jobs import ModelJob
from workers.trainer.jobs.generation import (
    GenerationError,
    GenerationRequest,
    GenerationResult,
    ModelEngine,
    PromptScores,
    completion_limit,
)
from workers.trainer.rollouts.vllm_client import AdapterClient

SILENCE_S = 120.0
"""Maximum number of seconds between two tokens; the first request to a cold server compiles kernels."""


class VllmEngine(ModelEngine):
    """Engine that uses a server over HTTP. `_models` holds the models' names on that server."""

    name = "vLLM"
    at_once = 16

    def __init__(self, job: ModelJob) -> None:
        server, settings = servers_of(job.spec)[0], job.spec.run.hardware.server
        self._address = urlsplit(server.address)
        served = served_name(job.spec, server)
        models = {TRAINED: served}
        if job.is_adapter:
            timeout = float(settings.request_timeout_s) if settings else SILENCE_S
            client = AdapterClient(server.address, served, request_timeout_s=timeout, adapters=TRAINED)
            client.check()
            client.use_adapter(TRAINED, job.checkpoint)
            models = {TRAINED: TRAINED, BASE: served}
        try:
            tokenizer = AutoTokenizer.from_pretrained(job.tokenizer)
            max_positions = AutoConfig.from_pretrained(job.base).get_text_config().max_position_embeddings
        except (OSError, ValueError, AttributeError) as error:
            raise SpecError(f"The model's tokenizer or config can't be read: {error}") from error
        lengths = filter(None, (settings.max_model_len if settings else None, max_positions))
        super().__init__(models, tokenizer, min(lengths, default=None))

    def answer(
        self, request: GenerationRequest, send: Callable[[str], None], has_ended: Callable[[], bool]
    ) -> GenerationResult:
        ids, sampling = self._ids(request), request.sampling
        body = {
            "model": self._models[request.ask.model],
            "prompt": ids,
            "max_tokens": completion_limit(len(ids), self.context, sampling.max_tokens),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"stop": list(request.stop)} if request.stop else {}),
        }
        finish, tokens = Finish.STOPPED, 0
        with contextlib.closing(self._events(body)) as events:
            for event in events:
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
                for choice in event.get("choices") or ():
                    tokens += 1
                    send(str(choice.get("text") or ""))
                    if choice.get("finish_reason"):
                        finish = Finish.LENGTH if choice["finish_reason"] == "length" else Finish.STOP
                if has_ended():
                    break  # vLLM ends a generation when its client disconnects
        return GenerationResult(finish, tokens, len(ids))

    def _score(
        self, model: str, prompts: list[list[int]], extend: bool, top: int, has_ended: Callable[[], bool]
    ) -> list[PromptScores]:
        body = {"prompt": prompts, "max_tokens": 1, "temperature": 0, "logprobs": top, "echo": True}
        with self._response({"model": self._models[model], **body}) as response:
            choices = json.loads(response.read())["choices"]
        logprobs = [choice["logprobs"] for choice in sorted(choices, key=lambda choice: int(choice["index"]))]
        return [_scores(values, len(ids), extend) for values, ids in zip(logprobs, prompts, strict=True)]

    def _events(self, body: dict[str, Any]) -> Generator[dict[str, Any]]:
        with self._response(body) as response:
            for line in response:
                data = line.decode(errors="replace").removeprefix("data:").strip()
                if data == "[DONE]":
                    return
                if data.startswith("{"):
                    yield json.loads(data)

    @contextlib.contextmanager
    def _response(self, body: dict[str, Any]) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=SILENCE_S)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", body=json.dumps(body).encode(), headers=headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                content = response.read(2000).decode(errors="replace")
                reason = " ".join(content.split())[:300]
                raise GenerationError(f"The vLLM server refused the request ({response.status}): {reason}")
            yield response
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            raise GenerationError(
                f"The connection to the vLLM server failed: {error or type(error).__name__}"
            ) from error
        finally:
            connection.close()


def _scores(logprobs: dict[str, Any], prompt_tokens: int, extend: bool) -> PromptScores:
    """Convert vLLM's `logprobs` of a prompt, which end with one generated token."""
    count = prompt_tokens + extend
    tops = (None if top is None else dict(top) for top in logprobs["top_logprobs"][:count])
    tokens, values = logprobs["tokens"][:count], logprobs["token_logprobs"][:count]
    return PromptScores(tuple(tokens), tuple(values), tuple(tops), extend)
