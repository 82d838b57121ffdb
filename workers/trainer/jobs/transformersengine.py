"""Answers by transformers: a checkpoint and the model before its training, on the CPU or on one GPU.

An adapter lies on its base, and the base answers with the adapter turned off. All weights are loaded beside their base,
unless the base isn't wanted.
Only safetensors are read.
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
from workers.trainer.jobs.asking import Answered, Asked, AskError, Room, Scored, cut_at, prompt_ids, room_for
from workers.trainer.jobs.scoring import score

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
        self.context = _context(self._models[TRAINED])
        self._room = Room(self.at_once)

    def _load(self, job: Job, with_base: bool) -> tuple[dict[str, Any], bool]:
        """The models by name, and whether they are one with an adapter."""
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
        return self._room.turn(ended)

    def answer(self, asked: Asked, tell: Callable[[str], None], ended: Callable[[], bool]) -> Answered:
        ids, model = self._ids(asked), self._models[asked.ask.model]
        most = room_for(len(ids), self.context, asked.sampling.max_tokens)
        text = _Text(self._tokenizer, tell, asked.stop)
        torch.manual_seed(asked.sampling.seed)
        prompt = torch.tensor([ids], device=self._device)
        with torch.inference_mode(), self._as(asked.ask.model):
            output = model.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=self._settings(model, asked, most),
                streamer=text,
                stopping_criteria=[_Ends(lambda: text.cut or ended())],
            )
        tokens = output[0][len(ids) :].tolist()
        return Answered(self._finish(tokens, most, text, ended), len(tokens), len(ids))

    def answers(self, asked: Sequence[Asked], ended: Callable[[], bool]) -> list[tuple[str, Answered]]:
        prompts, first = [self._ids(each) for each in asked], asked[0]
        width, model = max(map(len, prompts)), self._models[first.ask.model]
        most = room_for(width, self.context, first.sampling.max_tokens)
        settings = self._settings(model, first, most)
        rows = [[settings.pad_token_id] * (width - len(ids)) + ids for ids in prompts]
        mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
        texts = _Texts(self._tokenizer, width, first.stop, len(prompts))
        torch.manual_seed(first.sampling.seed)
        with torch.inference_mode(), self._as(first.ask.model):
            output = model.generate(
                input_ids=torch.tensor(rows, device=self._device),
                attention_mask=torch.tensor(mask, device=self._device),
                generation_config=settings,
                stopping_criteria=[texts, _Ends(ended)],
            )
        found = []
        for ids, all_tokens, length in zip(prompts, output[:, width:].tolist(), texts.lengths, strict=True):
            tokens, ended_itself = _until(self._ends(model), all_tokens[:length])
            stopped = ended_itself or length is not None
            finish = Finish.STOP if stopped else Finish.LENGTH if len(tokens) >= most else Finish.STOPPED
            found.append((texts.text(tokens), Answered(finish, len(tokens), len(ids))))
        return found

    def score(self, asked: Sequence[Asked], top: int, ended: Callable[[], bool]) -> list[Scored]:
        prompts = [self._ids(each) for each in asked]
        further = any(each.sampling.max_tokens for each in asked)
        for ids in prompts:
            room_for(len(ids), self.context, int(further))
        name = asked[0].ask.model
        with self._as(name):
            return score(self._models[name], prompts, further=further, top=top, name=self._name, ended=ended)

    def _ids(self, asked: Asked) -> list[int]:
        ids = prompt_ids(self._tokenizer, asked)
        most = self._models[asked.ask.model].get_input_embeddings().num_embeddings
        if asked.tokens and max(ids) >= most:  # on a GPU this would end the process
            raise AskError(f"There is no token {max(ids)}: the model has {most:,}.")
        return ids

    def _name(self, token: int) -> str:
        return str(self._tokenizer.decode([token]))

    def _as(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """The base answers with the adapter turned off."""
        off = self._adapter and name == BASE
        return self._models[name].disable_adapter() if off else contextlib.nullcontext()

    def _finish(self, tokens: list[int], most: int, text: _Text, ended: Callable[[], bool]) -> Finish:
        if text.cut or (tokens and tokens[-1] in self._ends(self._models[TRAINED])):
            return Finish.STOP
        if len(tokens) >= most:
            return Finish.LENGTH
        return Finish.STOPPED if ended() else Finish.STOP

    def _settings(self, model: Any, asked: Asked, most: int) -> GenerationConfig:
        sampling = asked.sampling
        ends = self._ends(model)
        settings: dict[str, Any] = {"max_new_tokens": most, "eos_token_id": ends or None, "top_k": 0}
        settings["pad_token_id"] = self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else ends[0]
        if sampling.temperature > 0:
            settings |= {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p}
        else:
            settings |= {"do_sample": False, "top_k": None}
        return GenerationConfig(**settings)

    def _ends(self, model: Any) -> list[int]:
        """The tokens that end an answer."""
        ends = model.generation_config.eos_token_id
        both = [self._tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])]
        return [int(token) for token in dict.fromkeys(both) if token is not None]

    def close(self) -> None:
        self._models.clear()


class _Ends(StoppingCriteria):  # type: ignore[misc]  # transformers is untyped here
    def __init__(self, ended: Callable[[], bool]) -> None:
        self._ended = ended

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((input_ids.shape[0],), self._ended(), device=input_ids.device, dtype=torch.bool)


class _Texts(StoppingCriteria):  # type: ignore[misc]  # transformers is untyped here
    """Ends each of several answers at a stop text."""

    def __init__(self, tokenizer: Any, width: int, stops: tuple[str, ...], rows: int) -> None:
        self._tokenizer = tokenizer
        self._width = width
        self._stops = stops
        self.lengths: list[int | None] = [None] * rows
        """Tokens until the stop text had come."""

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        if self._stops:
            for row, tokens in enumerate(input_ids[:, self._width :].tolist()):
                if self.lengths[row] is None and cut_at(self._decoded(tokens), self._stops) is not None:
                    self.lengths[row] = len(tokens)
        ended = [length is not None for length in self.lengths]
        return torch.tensor(ended, device=input_ids.device, dtype=torch.bool)

    def text(self, tokens: list[int]) -> str:
        text = self._decoded(tokens)
        return text[: cut_at(text, self._stops)]

    def _decoded(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


class _Text(BaseStreamer):  # type: ignore[misc]  # transformers is untyped here
    """Tells text as it becomes certain, up to a stop text."""

    def __init__(self, tokenizer: Any, tell: Callable[[str], None], stops: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._tell = tell
        self._stops = stops
        self._ids: list[int] = []
        self._from = self._read = 0
        """Tokens before `_read` are told; decoding starts at `_from`, as a token's text depends on the one before."""
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
        place = cut_at(self._held, self._stops)
        if place is not None:
            self.cut = True
            self._held = self._held[:place]
        # The start of a stop text may be at the end of what has come.
        keep = 0 if self.cut or last else max((len(stop) - 1 for stop in self._stops), default=0)
        told, self._held = self._held[: len(self._held) - keep], self._held[max(0, len(self._held) - keep) :]
        if told:
            self._tell(told)


def _until(ends: list[int], tokens: list[int]) -> tuple[list[int], bool]:
    """The tokens of an answer with the one that ends it, and whether there is one: padding follows it."""
    last = next((place for place, token in enumerate(tokens) if token in ends), None)
    return (tokens, False) if last is None else (tokens[: last + 1], True)


def _tokenizer(job: Job) -> Any:
    """The checkpoint's, which may have a chat template of its training's; otherwise the base's."""
    own = (job.checkpoint / TOKENIZER).is_file()
    where = str(job.checkpoint) if own else job.base
    revision = None if own else job.spec.run.model.revision
    remote = job.spec.run.model.trust_remote_code
    return AutoTokenizer.from_pretrained(where, revision=revision, trust_remote_code=remote)


def _context(model: Any) -> int | None:
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return int(longest) if longest else None
