"""How long forward and backward passes take over batches of different lengths, with cuDNN's attention and without.

    python -m tests.gpu.attention --out DIR               one GPU, a minute; writes DIR/attention.json
    python -m tests.gpu.attention --out DIR --rehearsal   a tiny model, on the CPU

A 1.5B shape with random weights and activation checkpointing, 8 sequences a pass; the logits of all but the first 40
tokens, as for completions.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.gpu.models import SHAPES, Shape

LENGTHS = (550, 550, 557, 557, 561, 566, 570, 570, 1021, 1030, 1030)
"""Of the batches, in turn: the first of each length pays for its plan."""
SEQUENCES, PROMPT = 8, 40
TINY = Shape(64, 2, 4, 2, 128, vocab_size=1_000)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.attention", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rehearsal", action="store_true")
    options = parser.parse_args(argv)

    import torch

    card = "no GPU" if options.rehearsal else torch.cuda.get_device_name()
    model = _model(TINY if options.rehearsal else SHAPES["1.5b"], "cpu" if options.rehearsal else "cuda")
    found: dict[str, Any] = {"card": card, "torch": torch.__version__, "lengths": LENGTHS}
    for cudnn in (True, False):
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        for padded in (False, True):
            for backward in (False, True):
                name = f"{'cudnn' if cudnn else 'without'}, {'padded' if padded else 'full'}"
                seconds = [_seconds(model, length, padded, backward) for length in LENGTHS]
                found[f"{name}, {'forward and backward' if backward else 'forward'}"] = seconds
                print(name, seconds, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "attention.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _model(shape: Shape, device: str) -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    with torch.device(device):
        model = Qwen2ForCausalLM(Qwen2Config(**asdict(shape))).to(torch.bfloat16)
    model.train()
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    return model


def _seconds(model: Any, length: int, padded: bool, backward: bool) -> float:
    import torch

    ids = torch.randint(0, 1000, (SEQUENCES, length), device=model.device)
    mask = torch.ones_like(ids)
    if padded:
        mask[0, :7], mask[1, -30:] = 0, 0
    finish = torch.cuda.synchronize if model.device.type == "cuda" else lambda: None
    finish()
    begun = time.monotonic()
    with torch.set_grad_enabled(backward):
        kept = length - PROMPT
        logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=kept, use_cache=False).logits
        if backward:
            logits.float().logsumexp(-1).sum().backward()
            model.zero_grad()
    finish()
    return round(time.monotonic() - begun, 2)


if __name__ == "__main__":
    raise SystemExit(main())
