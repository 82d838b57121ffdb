"""Generation by transformers: a checkpoint and its base model, on the CPU or on one GPU.

An adapter is loaded on its base, and disabled for answers of the base. A full checkpoint is loaded in addition to its
base, unless the base isn't needed. Only safetensors are read.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, StoppingCriteria
from transformers.generation.streamers import BaseStreamer
from transformers.utils import logging

from workers.contract.reports.chat import BASE, TRAINED, Finish
from workers.trainer.configuration.spec import SpecError
from workers.trainer.jobs import ModelJob
from workers.trainer.jobs.generation import (
    GenerationError,
    GenerationRequest,
    GenerationResult,
    ModelEngine,
    PromptScores,
    completion_limit,
    first_stop,
    up_to_end,
)
from workers.trainer.jobs.prompt_scores import score


class TransformersEngine(ModelEngine):
    name = "transformers"
    at_once = 1

    def __init__(self, job: ModelJob, *, with_base: bool = True) -> None:
        logging.disable_progress_bar()
        self._device = "cuda" if job.spec.placement.gpus else "cpu"
        if threads := job.spec.run.hardware.threads:
            torch.set_num_threads(threads)
        self._is_adapter = job.is_adapter
        """True if both names belong to the same model."""
        try:
            tokenizer, models = _tokenizer(job), self._load(job, with_base)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise SpecError(f"The model can't be loaded: {' '.join(str(error).split())[:600]}") from error
        config = models[TRAINED].config.get_text_config()
        super().__init__(models, tokenizer, getattr(config, "max_position_embeddings", None) or None)

    def _load(self, job: ModelJob, with_base: bool) -> dict[str, Any]:
        models = {} if job.is_adapter else {TRAINED: self._model(job, str(job.checkpoint), None)}
        if job.is_adapter or with_base:
            models[BASE] = self._model(job, job.base, job.spec.run.model.revision)
        if job.is_adapter:
            from peft import PeftModel

            adapted_model = PeftModel.from_pretrained(models[BASE], str(job.checkpoint), use_safetensors=True).eval()
            models = {TRAINED: adapted_model, BASE: adapted_model}
        return models

    def _model(self, job: ModelJob, path: str, revision: str | None) -> Any:
        model = AutoModelForCausalLM.from_pretrained(
            path,
            revision=revision,
            dtype=torch.bfloat16 if self._device == "cuda" else torch.float32,
            attn_implementation=job.spec.run.attn_implementation,
            trust_remote_code=job.spec.run.model.trust_remote_code,
            use_safetensors=True,
        )
        return model.to(self._device).eval()

    def answer(
        self, request: GenerationRequest, send: Callable[[str], None], has_ended: Callable[[], bool]
    ) -> GenerationResult:
        ids, model = self._ids(request), self._models[request.ask.model]
        limit = completion_limit(len(ids), self.context, request.sampling.max_tokens)
        streamer = _TextStreamer(self._tokenizer, send, request.stop)
        torch.manual_seed(request.sampling.seed)
        prompt = torch.tensor([ids], device=self._device)
        with torch.inference_mode(), self._adapter_for(request.ask.model):
            output = model.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=self._settings(model, request, limit),
                streamer=streamer,
                stopping_criteria=[_EndedCriterion(lambda: streamer.stopped or has_ended())],
            )
        tokens = output[0][len(ids) :].tolist()
        return GenerationResult(self._finish(tokens, limit, streamer, has_ended), len(tokens), len(ids))

    def answers(
        self, requests: Sequence[GenerationRequest], has_ended: Callable[[], bool]
    ) -> list[tuple[str, GenerationResult]]:
        prompts, first_request = [self._ids(request) for request in requests], requests[0]
        width, model = max(map(len, prompts)), self._models[first_request.ask.model]
        limit = completion_limit(width, self.context, first_request.sampling.max_tokens)
        settings = self._settings(model, first_request, limit)
        rows = [[settings.pad_token_id] * (width - len(ids)) + ids for ids in prompts]
        mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
        stops = _StopTextCriterion(self._tokenizer, width, first_request.stop, len(prompts))
        torch.manual_seed(first_request.sampling.seed)
        with torch.inference_mode(), self._adapter_for(first_request.ask.model):
            output = model.generate(
                input_ids=torch.tensor(rows, device=self._device),
                attention_mask=torch.tensor(mask, device=self._device),
                generation_config=settings,
                stopping_criteria=[stops, _EndedCriterion(has_ended)],
            )
        completions = []
        for ids, padded_tokens, length in zip(prompts, output[:, width:].tolist(), stops.lengths, strict=True):
            end_tokens = self._ends(model)
            tokens = up_to_end(padded_tokens[:length], end_tokens)
            is_complete = length is not None or (tokens and tokens[-1] in end_tokens)
            finish = Finish.STOP if is_complete else Finish.LENGTH if len(tokens) >= limit else Finish.STOPPED
            completions.append((stops.text(tokens), GenerationResult(finish, len(tokens), len(ids))))
        return completions

    def _score(
        self, model: str, prompts: list[list[int]], extend: bool, top: int, has_ended: Callable[[], bool]
    ) -> list[PromptScores]:
        def text_of(token: int) -> str:
            return str(self._tokenizer.decode([token]))

        with self._adapter_for(model):
            return score(self._models[model], prompts, extend=extend, top=top, text_of=text_of, has_ended=has_ended)

    def _ids(self, request: GenerationRequest) -> list[int]:
        ids = super()._ids(request)
        count = self._models[request.ask.model].get_input_embeddings().num_embeddings
        if request.tokens and max(ids) >= count:  # on a GPU this would crash the process
            raise GenerationError(f"There is no token {max(ids)}: the model has {count:,} tokens.")
        return ids

    def _adapter_for(self, model: str) -> contextlib.AbstractContextManager[Any]:
        disables_adapter = self._is_adapter and model == BASE
        return self._models[model].disable_adapter() if disables_adapter else contextlib.nullcontext()

    def _finish(
        self, tokens: list[int], limit: int, streamer: "_TextStreamer", has_ended: Callable[[], bool]
    ) -> Finish:
        if streamer.stopped or (tokens and tokens[-1] in self._ends(self._models[TRAINED])):
            return Finish.STOP
        if len(tokens) >= limit:
            return Finish.LENGTH
        return Finish.STOPPED if has_ended() else Finish.STOP

    def _settings(self, model: Any, request: GenerationRequest, limit: int) -> GenerationConfig:
        sampling = request.sampling
        end_tokens = self._ends(model)
        settings: dict[str, Any] = {"max_new_tokens": limit, "eos_token_id": end_tokens or None, "top_k": 0}
        settings["pad_token_id"] = (
            self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else end_tokens[0]
        )
        if sampling.temperature > 0:
            settings |= {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p}
        else:
            settings |= {"do_sample": False, "top_k": None}
        return GenerationConfig(**settings)

    def _ends(self, model: Any) -> list[int]:
        ends = model.generation_config.eos_token_id
        tokens = [self._tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])]
        return [int(token) for token in dict.fromkeys(tokens) if token is not None]


class _EndedCriterion(StoppingCriteria):  # type: ignore[misc]  # transformers is untyped here
    def __init__(self, has_ended: Callable[[], bool]) -> None:
        self._ended = has_ended

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((input_ids.shape[0],), self._ended(), device=input_ids.device, dtype=torch.bool)


class _StopTextCriterion(StoppingCriteria):  # type: ignore[misc]  # transformers is untyped here
    """Criterion that ends each of several answers at a stop string."""

    def __init__(self, tokenizer: Any, width: int, stops: tuple[str, ...], rows: int) -> None:
        self._tokenizer = tokenizer
        self._width = width
        self._stops = stops
        self.lengths: list[int | None] = [None] * rows
        """Number of tokens of each answer up to its stop string; None if there is none yet."""

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        if self._stops:
            for row, tokens in enumerate(input_ids[:, self._width :].tolist()):
                if self.lengths[row] is None and first_stop(self._decode(tokens), self._stops) is not None:
                    self.lengths[row] = len(tokens)
        ended = [length is not None for length in self.lengths]
        return torch.tensor(ended, device=input_ids.device, dtype=torch.bool)

    def text(self, tokens: list[int]) -> str:
        text = self._decode(tokens)
        return text[: first_stop(text, self._stops)]

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


class _TextStreamer(BaseStreamer):  # type: ignore[misc]  # transformers is untyped here
    """Streamer that passes on text as soon as it is certain, up to a stop string."""

    def __init__(self, tokenizer: Any, send: Callable[[str], None], stops: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._send = send
        self._stops = stops
        self._ids: list[int] = []
        self._from = self._read = 0
        """Indexes of tokens: those before `_read` were sent, and decoding starts at `_from`, because a token's text
        depends on the previous token."""
        self._prompt_is_next = True
        self._held = ""
        self.stopped = False
        """True once a stop string was found."""

    def put(self, value: Any) -> None:
        if self._prompt_is_next:
            self._prompt_is_next = False
            return
        self._ids += value.reshape(-1).tolist()
        text = self._unsent()
        if text and not text.endswith("\ufffd"):  # otherwise a character's remaining bytes are yet to come
            self._from, self._read = self._read, len(self._ids)
            self._add(text)

    def end(self) -> None:
        self._add(self._unsent(), is_last=True)

    def _unsent(self) -> str:
        sent_text, text = (
            str(self._tokenizer.decode(self._ids[self._from : end], skip_special_tokens=True))
            for end in (self._read, len(self._ids))
        )
        return text[len(sent_text) :]

    def _add(self, text: str, *, is_last: bool = False) -> None:
        if self.stopped:
            return
        self._held += text
        stop_at = first_stop(self._held, self._stops)
        if stop_at is not None:
            self.stopped = True
            self._held = self._held[:stop_at]
        # The received text may end with the beginning of a stop string.
        uncertain_length = 0 if self.stopped or is_last else max((len(stop) - 1 for stop in self._stops), default=0)
        end = max(0, len(self._held) - uncertain_length)
        sendable_text, self._held = self._held[:end], self._held[end:]
        if sendable_text:
            self._send(sendable_text)


def _tokenizer(job: ModelJob) -> Any:
    folder, model = job.tokenizer, job.spec.run.model
    revision = model.revision if folder == job.base else None
    return AutoTokenizer.from_pretrained(folder, revision=revision, trust_remote_code=model.trust_remote_code)
