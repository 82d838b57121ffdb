"""The fake vLLM's real engine: samples with transformers on the CPU under the adapter that a request names.

Runs in the trainer's interpreter. The log probabilities are those of the distribution that was sampled from, so what a
trainer computes with the same weights agrees to rounding, and disagrees when the server holds an old adapter.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

logging.disable_progress_bar()
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
torch.manual_seed(0)  # vLLM's own default: the same requests get the same completions


class Backend:
    """Answers the front's requests: generate, score, load, unload."""

    def __init__(self, model: str, dtype: str, *, processed_logprobs: bool) -> None:
        dtype = {"half": "float16", "float": "float32"}.get(dtype, dtype)
        self.model: Any = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.processed_logprobs = processed_logprobs
        ends = self.model.generation_config.eos_token_id
        self.ends = {self.tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        op = request.pop("op")
        ops = {"generate": self.generate, "score": self.score, "load": self.load, "unload": self.unload}
        try:
            return ops[op](**request)
        except (RuntimeError, ValueError, KeyError, OSError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def load(self, name: str, path: str) -> dict[str, Any]:
        if isinstance(self.model, PeftModel):
            self.model.load_adapter(path, adapter_name=name)
        else:
            self.model = PeftModel.from_pretrained(self.model, path, adapter_name=name).eval()
        return {}

    def unload(self, name: str) -> dict[str, Any]:
        if others := [other for other in self.model.peft_config if other != name]:
            self.model.set_adapter(others[-1])  # deleting the active one warns
            self.model.delete_adapter(name)
        else:
            self.model = self.model.unload()
        return {}

    def generate(self, prompts: list[list[int]], n: int, adapter: str | None, **sampling: Any) -> dict[str, Any]:
        if "seed" in sampling:
            torch.manual_seed(sampling.pop("seed"))
        with torch.inference_mode(), self._under(adapter):
            output = self.model.generate(**self._inputs(prompts, n), **self._settings(sampling))
        width = max(map(len, prompts))
        scores = output.scores if self.processed_logprobs else output.logits
        logprobs = torch.stack(scores, dim=1).float().log_softmax(-1)
        tokens = output.sequences[:, width:]
        chosen = logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        return {"sequences": [self._sequence(t, p) for t, p in zip(tokens.tolist(), chosen.tolist(), strict=True)]}

    def score(self, prompts: list[list[int]], adapter: str | None) -> dict[str, Any]:
        """The prompts' own tokens, each with its log probability and the most probable one; the first has none."""
        scored = []
        with torch.inference_mode(), self._under(adapter):
            for prompt in prompts:
                logprobs = self.model(torch.tensor([prompt])).logits[0].float().log_softmax(-1)
                own = [logprobs[place, token].item() for place, token in enumerate(prompt[1:])]
                best = [(self.tokenizer.decode([place.argmax()]), place.max().item()) for place in logprobs[:-1]]
                names = [self.tokenizer.decode([token]) for token in prompt]
                places = zip(names[1:], own, best, strict=True)
                top = [{name: value, most: high} for name, value, (most, high) in places]
                scored.append({"tokens": names, "logprobs": [None, *own], "top": [None, *top]})
        return {"scored": scored}

    def _under(self, adapter: str | None) -> contextlib.AbstractContextManager[Any]:
        if adapter is not None:
            self.model.set_adapter(adapter)
            return contextlib.nullcontext()
        return self.model.disable_adapter() if isinstance(self.model, PeftModel) else contextlib.nullcontext()

    def _inputs(self, prompts: list[list[int]], n: int) -> dict[str, torch.Tensor]:
        """Left-padded prompts, prompt-major: the n copies of a prompt stand together."""
        width, pad = max(map(len, prompts)), self._pad()
        rows = [[pad] * (width - len(p)) + p for p in prompts for _ in range(n)]
        mask = [[0] * (width - len(p)) + [1] * len(p) for p in prompts for _ in range(n)]
        return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}

    def _settings(self, sampling: dict[str, Any]) -> dict[str, Any]:
        greedy = sampling.get("temperature", 1.0) == 0
        settings: dict[str, Any] = {
            "max_new_tokens": sampling["max_tokens"],
            "do_sample": not greedy,
            "repetition_penalty": sampling.get("repetition_penalty", 1.0),
            "eos_token_id": sorted(self.ends),
            "pad_token_id": self._pad(),
            "return_dict_in_generate": True,
            "output_scores": True,
            "output_logits": True,
        }
        if not greedy:
            settings |= {"temperature": sampling.get("temperature", 1.0), "top_p": sampling.get("top_p", 1.0)}
            settings |= {"top_k": max(sampling.get("top_k", 0), 0), "min_p": sampling.get("min_p") or None}
        return settings

    def _sequence(self, tokens: list[int], logprobs: list[float]) -> dict[str, Any]:
        """Up to and with the end token; what follows it in a batch is padding."""
        end = next((i for i, token in enumerate(tokens) if token in self.ends), None)
        length = len(tokens) if end is None else end + 1
        text = self.tokenizer.decode(tokens[:length], skip_special_tokens=True)
        return {"tokens": tokens[:length], "logprobs": logprobs[:length], "ended": end is not None, "text": text}

    def _pad(self) -> int:
        pad = self.tokenizer.pad_token_id
        return int(min(self.ends) if pad is None else pad)
