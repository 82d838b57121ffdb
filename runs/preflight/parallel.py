"""Tensor and data parallelism of vLLM against the model: heads that can be shared out, experts that gain by it."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, stop, warn
from workers.contract import Rollout

LARGEST = 16
"""Tensor parallel sizes that are offered instead."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""What configs of mixture-of-experts models call their number."""


def check(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is None:
        return
    if draft.server and not draft.server.attached:
        yield from _heads(draft, draft.server.tensor_parallel, "the vLLM server")
        if draft.server.data_parallel > 1 and _is_dense(draft):
            yield warn(
                "profile",
                f"The profile runs {draft.server.data_parallel} data-parallel ranks in one vLLM server, which is made "
                "for mixture-of-experts models; this one is dense.",
                "Take several servers instead, or tensor parallelism.",
            )
    if draft.hardware.rollout == Rollout.COLOCATE:
        yield from _heads(draft, draft.hardware.colocate_tensor_parallel, "the colocated vLLM")


def splits(heads: int, kv_heads: int, size: int) -> bool:
    """Whether vLLM can share the attention out over `size` GPUs: key-value heads are split, or else copied."""
    kv = kv_heads or heads
    return heads % size == 0 and (kv % size == 0 or size % kv == 0)


def _heads(draft: Draft, size: int, whose: str) -> Iterator[Finding]:
    heads, kv_heads = draft.told("heads"), draft.told("kv_heads")
    if size < 2 or not heads or splits(heads, kv_heads, size):
        return
    kv = f" and {kv_heads} key-value heads" if kv_heads and kv_heads != heads else ""
    fits = [str(n) for n in range(1, LARGEST + 1) if splits(heads, kv_heads, n)]
    yield stop(
        "profile",
        f"The model has {heads} attention heads{kv}, which can't be split over {size} GPUs: that is the tensor "
        f"parallelism of {whose}.",
        f"Choose a profile with tensor parallelism {_either(fits)}.",
    )


def _either(words: list[str]) -> str:
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _is_dense(draft: Draft) -> bool:
    config = (draft.inspection or {}).get("config")
    return isinstance(config, dict) and bool(config) and not any(config.get(name) for name in EXPERTS)
