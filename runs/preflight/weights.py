"""How the policy reaches its vLLM server, and what a LoRA becomes on that road."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, note
from workers.contract import WeightSync


def check(draft: Draft) -> Iterator[Finding]:
    server = draft.server
    if server is not None and server.weight_sync == WeightSync.NCCL and draft.lora:
        yield note(
            "use_lora",
            "With NCCL the adapter is merged into the weights for each update, and all of them travel.",
            "LoRA hot-swap sends the adapter alone.",
        )
