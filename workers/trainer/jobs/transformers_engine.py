"""Generation by transformers: a checkpoint and the model before its training, on the CPU or on one GPU.

An adapter is loaded on its base, and disabled for answers of the base. A full checkpoint is loaded beside its base,
unless the base isn't needed. Only safetensors are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, StoppingCriteria
from transformers.generation.streamers import BaseStreamer
from transformers.utils import logging

from workers.contract.reports.chat import BASE, TRAINED, Finish
from workers.trainer.configuration.spec import SpecError
from workers.trainer.jobs import Job
from workers.trainer.jobs.generation import (
    GenerationError,
    GenerationRequest,
    GenerationResult,
    PromptScores,
    Slots,
    completion_limit,
    first_stop,
    prompt_ids,
)
from workers.trainer.jobs.prompt_scores import score

TOKENIZER = "tokenizer_config.json"


class TransformersEngine:
    name = "transformers"
    at_once = 1

    def __init__(self, job: Job, *, with_base: bool = True) -> None:
        logging.disable_progress_bar()
        self._device = "cuda" if job.spec.placement.gpus else "cpu"
        if threads := job.spec.run.hardware.threads:
            torch.set_num_threads(threads)
        try:
            self._tokenizer = _tokenizer(job)
            self._models, self._adapter = self._load(job, with_base)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise SpecError(f"The model can't be loaded: {' '.join(str(error).split())[:600]}") from error
        self.models: tuple[str, ...] = tuple(self._models)
        self.template = bool(self._tokenizer.chat_template)
        config = self._models[TRAINED].config.get_text_config()
        self.context: int | None = getattr(config, "max_position_embeddings", None) or None
        self._slots = Slots(self.at_once)

    def _load(self, job: Job, with_base: bool) -> tuple[dict[str, Any], bool]:
        """Return the models by name, and whether they are one model with an adapter."""
        if not job.is_adapter and not with_base:
            return {TRAINED: self._model(job, str(job.checkpoint), None)}, False
        base = self._model(job, job.base, job.spec.run.model.revision)
        if not job.is_adapter:
            return {TRAINED: self._model(job, str(job.checkpoint), None), BASE: base}, False
        from peft import PeftModel

        model = PeftModel.from_pretrained(base, str(job.checkpoint), use_safetensors=True).eval()
        return {TRAINED: model, BASE: model}, True

    def _model(self, job: Job, path: str, revision: str | None) -> Any:
        model = AutoModelForCausalLM.from_pretrained(
            path,
            revision=revision,
            dtype=torch.bfloat16 if self._device == "cuda" else torch.float32,
            attn_implementation=job.spec.run.attn_implementation,
            trust_remote_code=job.spec.run.model.trust_remote_code,
            use_safetensors=True,
        )
        return model.to(self._device).eval()

    def turn(self, ended: Callable[[], object]) -> contextlib.AbstractContextManager[None]:
        return self._slots.turn(ended)

    def answer(
        self, request: GenerationRequest, send: Callable[[str], None], ended: Callable[[], bool]
    ) -> GenerationResult:
        ids, model = self._ids(request), self._models[request.ask.model]
        most = completion_limit(len(ids), self.context, request.sampling.max_tokens)
        text = _TextStreamer(self._tokenizer, send, request.stop)
        torch.manual_seed(request.sampling.seed)
        prompt = torch.tensor([ids], device=self._device)
        with torch.inference_mode(), self._adapter_for(request.ask.model):
            output = model.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=self._settings(model, request, most),
                streamer=text,
                stopping_criteria=[_EndedCriterion(lambda: text.cut or ended())],
            )
        tokens = output[0][len(ids) :].tolist()
        return GenerationResult(self._finish(tokens, most, text, ended), len(tokens), len(ids))

    def answers(
        self, requests: Sequence[GenerationRequest], ended: Callable[[], bool]
    ) -> list[tuple[str, GenerationResult]]:
        prompts, first = [self._ids(request) for request in requests], requests[0]
        width, model = max(map(len, prompts)), self._models[first.ask.model]
        most = completion_limit(width, self.context, first.sampling.max_tokens)
        settings = self._settings(model, first, most)
        rows = [[settings.pad_token_id] * (width - len(ids)) + ids for ids in prompts]
        mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
        stops = _StopTextCriterion(self._tokenizer, width, first.stop, len(prompts))
        torch.manual_seed(first.sampling.seed)
        with torch.inference_mode(), self._adapter_for(first.ask.model):
            output = model.generate(
                input_ids=torch.tensor(rows, device=self._device),
                attention_mask=torch.tensor(mask, device=self._device),
                generation_config=settings,
                stopping_criteria=[stops, _EndedCriterion(ended)],
            )
        completions = []
        for ids, padded, length in zip(prompts, output[:, width:].tolist(), stops.lengths, strict=True):
            tokens, at_eos = _until(self._ends(model), padded[:length])
            stopped = at_eos or length is not None
            finish = Finish.STOP if stopped else Finish.LENGTH if len(tokens) >= most else Finish.STOPPED
            completions.append((stops.text(tokens), GenerationResult(finish, len(tokens), len(ids))))
        return completions

    def score(self, requests: Sequence[GenerationRequest], top: int, ended: Callable[[], bool]) -> list[PromptScores]:
        prompts = [self._ids(request) for request in requests]
        further = any(request.sampling.max_tokens for request in requests)
        for ids in prompts:
            completion_limit(len(ids), self.context, int(further))
        model = requests[0].ask.model
        with self._adapter_for(model):
            return score(self._models[model], prompts, further=further, top=top, text_of=self._text_of, ended=ended)

    def _ids(self, request: GenerationRequest) -> list[int]:
        ids = prompt_ids(self._tokenizer, request)
        most = self._models[request.ask.model].get_input_embeddings().num_embeddings
        if request.tokens and max(ids) >= most:  # on a GPU this would end the process
            raise GenerationError(f"There is no token {max(ids)}: the model has {most:,}.")
        return ids

    def _text_of(self, token: int) -> str:
        return str(self._tokenizer.decode([token]))

    def _adapter_for(self, model: str) -> contextlib.AbstractContextManager[Any]:
        """Disable the adapter for answers of the base."""
        off = self._adapter and model == BASE
        return self._models[model].disable_adapter() if off else contextlib.nullcontext()

    def _finish(self, tokens: list[int], most: int, text: _TextStreamer, ended: Callable[[], bool]) -> Finish:
        if text.cut or (tokens and tokens[-1] in self._ends(self._models[TRAINED])):
            return Finish.STOP
        if len(tokens) >= most:
            return Finish.LENGTH
        return Finish.STOPPED if ended() else Finish.STOP

    def _settings(self, model: Any, request: GenerationRequest, most: int) -> GenerationConfig:
        sampling = request.sampling
        ends = self._ends(model)
        settings: dict[str, Any] = {"max_new_tokens": most, "eos_token_id": ends or None, "top_k": 0}
        settings["pad_token_id"] = self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else ends[0]
        if sampling.temperature > 0:
            settings |= {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p}
        else:
            settings |= {"do_sample": False, "top_k": None}
        return GenerationConfig(**settings)

    def _ends(self, model: Any) -> list[int]:
        """Return the tokens that end an answer."""
        ends = model.generation_config.eos_token_id
        both = [self._tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])]
        return [int(token) for token in dict.fromkeys(both) if token is not None]

    def close(self) -> None:
        self._models.clear()


class _EndedCriterion(StoppingCriteria):  # type: ignore[misc]  # transformers is untyped here
    def __init__(self, ended: Callable[[], bool]) -> None:
        self._ended = ended

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((input_ids.shape[0],), self._ended(), device=input_ids.device, dtype=torch.bool)


class _StopTextCriterion(StoppingCriteria):  # type: ignore[misc]  # transformers is untyped here
    """Ends each of several answers at a stop text."""

    def __init__(self, tokenizer: Any, width: int, stops: tuple[str, ...], rows: int) -> None:
        self._tokenizer = tokenizer
        self._width = width
        self._stops = stops
        self.lengths: list[int | None] = [None] * rows
        """Tokens of each answer up to its stop text; None: no stop text yet."""

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        if self._stops:
            for row, tokens in enumerate(input_ids[:, self._width :].tolist()):
                if self.lengths[row] is None and first_stop(self._decoded(tokens), self._stops) is not None:
                    self.lengths[row] = len(tokens)
        ended = [length is not None for length in self.lengths]
        return torch.tensor(ended, device=input_ids.device, dtype=torch.bool)

    def text(self, tokens: list[int]) -> str:
        text = self._decoded(tokens)
        return text[: first_stop(text, self._stops)]

    def _decoded(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


class _TextStreamer(BaseStreamer):  # type: ignore[misc]  # transformers is untyped here
    """Passes text on as it becomes certain, up to a stop text."""

    def __init__(self, tokenizer: Any, send: Callable[[str], None], stops: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._send = send
        self._stops = stops
        self._ids: list[int] = []
        self._from = self._read = 0
        """Tokens before `_read` were sent; decoding starts at `_from`, as a token's text depends on the one before."""
        self._prompt_is_next = True
        self._held = ""
        self.cut = False

    def put(self, value: Any) -> None:
        if self._prompt_is_next:
            self._prompt_is_next = False
            return
        self._ids += value.reshape(-1).tolist()
        before, text = self._decoded(self._from, self._read), self._decoded(self._from, len(self._ids))
        if len(text) > len(before) and not text.endswith("\ufffd"):  # else a character's other bytes are to come
            self._from, self._read = self._read, len(self._ids)
            self._add(text[len(before) :])

    def end(self) -> None:
        before, text = self._decoded(self._from, self._read), self._decoded(self._from, len(self._ids))
        self._add(text[len(before) :], last=True)

    def _decoded(self, start: int, end: int) -> str:
        return str(self._tokenizer.decode(self._ids[start:end], skip_special_tokens=True))

    def _add(self, text: str, *, last: bool = False) -> None:
        if self.cut:
            return
        self._held += text
        place = first_stop(self._held, self._stops)
        if place is not None:
            self.cut = True
            self._held = self._held[:place]
        # The start of a stop text may be at the end of what has come.
        keep = 0 if self.cut or last else max((len(stop) - 1 for stop in self._stops), default=0)
        place = max(0, len(self._held) - keep)
        certain, self._held = self._held[:place], self._held[place:]
        if certain:
            self._send(certain)


def _until(ends: list[int], tokens: list[int]) -> tuple[list[int], bool]:
    """Return the tokens up to the first end token, after which padding follows, and whether there is one."""
    last = next((place for place, token in enumerate(tokens) if token in ends), None)
    return (tokens, False) if last is None else (tokens[: last + 1], True)


def _tokenizer(job: Job) -> Any:
    """Load the checkpoint's tokenizer, which may have its training's chat template; otherwise the base's."""
    own = (job.checkpoint / TOKENIZER).is_file()
    where = str(job.checkpoint) if own else job.base
    revision = None if own else job.spec.run.model.revision
    remote = job.spec.run.model.trust_remote_code
    return AutoTokenizer.from_pretrained(where, revision=revision, trust_remote_code=remote)
