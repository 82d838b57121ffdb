"""Log-probabilities of the tokens of prompts, with several prompts per forward pass."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from workers.trainer.jobs.generation import MIN_LOGPROB, GenerationError, PromptScores

BATCH_TOKENS = 2048
"""Maximum number of tokens of one forward pass, with padding, unless one prompt has more; the limit exists because each
token gets logits as wide as the vocabulary."""
LOGIT_ROWS_AT_ONCE = 256


def score(
    model: Any,
    prompts: Sequence[list[int]],
    *,
    extend: bool,
    top: int,
    text_of: Callable[[int], str],
    has_ended: Callable[[], bool],
) -> list[PromptScores]:
    """Score prompts of token ids. Raises GenerationError once `has_ended` returns True. `extend`: whether to append the
    model's next token. `top`: how many of the most probable tokens to return at each position. `text_of`: decodes a
    token."""
    prompt_scores: list[PromptScores] = []
    for batch in _batches(prompts):
        if has_ended():
            raise GenerationError("The request was cancelled.")
        longest = max(map(len, batch))
        rows = [[*ids, *[0] * (longest - len(ids))] for ids in batch]
        mask = [[1] * len(ids) + [0] * (longest - len(ids)) for ids in batch]
        tensors = {"input_ids": rows, "attention_mask": mask}
        with torch.inference_mode():
            logits = model(
                **{key: torch.tensor(value, device=model.device) for key, value in tensors.items()}, use_cache=False
            ).logits
        prompt_scores += [
            _score(ids, row[: len(ids)], extend, top, text_of) for ids, row in zip(batch, logits, strict=True)
        ]
    return prompt_scores


def _batches(prompts: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    batch: list[list[int]] = []
    for ids in prompts:
        if batch and (len(batch) + 1) * max(len(ids), *map(len, batch)) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(ids)
    if batch:
        yield batch


def _score(ids: list[int], logits: Any, extend: bool, top: int, text_of: Callable[[int], str]) -> PromptScores:
    if extend:
        ids = [*ids, int(logits[-1].argmax())]
    values: list[float | None] = [None]
    tops: list[dict[str, float] | None] = [None]
    names = [text_of(token) for token in ids]
    for start in range(0, len(ids) - 1, LOGIT_ROWS_AT_ONCE):
        targets = torch.tensor(ids[start + 1 : start + 1 + LOGIT_ROWS_AT_ONCE], device=logits.device)
        logprobs = logits[start : start + len(targets)].float().log_softmax(-1).clamp(min=MIN_LOGPROB)
        target_logprobs = logprobs.gather(-1, targets.unsqueeze(-1)).squeeze(-1).tolist()
        most_probable = logprobs.topk(top)
        for token_id, value, probabilities, tokens in zip(
            names[start + 1 :],
            target_logprobs,
            most_probable.values.tolist(),
            most_probable.indices.tolist(),
            strict=False,
        ):
            logprob_by_text: dict[str, float] = {}
            for token, logprob in zip(tokens, probabilities, strict=True):
                logprob_by_text.setdefault(
                    text_of(token), logprob
                )  # if tokens have the same text, the first is most probable
            logprob_by_text.setdefault(token_id, value)
            values.append(value)
            tops.append(logprob_by_text)
    return PromptScores(tuple(names), tuple(values), tuple(tops), extend)
