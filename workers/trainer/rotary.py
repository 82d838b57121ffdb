"""Rotary frequencies at their full precision.

ZeRO-3 has transformers build a model inside DeepSpeed's zero.Init, where each new floating tensor takes the weights'
type. In bf16 the rotary frequencies lose sixteen of their bits, and by a position of some hundreds the angles are off
by tenths of a radian: a policy that is not the one vLLM samples from, nor the one that is served later. Seen on a 3B
shape, whose log probabilities were 0.097 a token away from vLLM's, where 0.02 is usual.
"""

from __future__ import annotations

from typing import Any

import torch


def restore(model: torch.nn.Module) -> int:
    """Compute anew, outside of any context, the frequencies that aren't fp32. Answers how many modules had such.

    Raises TypeError for a rotary embedding that isn't made of its config, as those of transformers are.
    """
    restored = 0
    for module in model.modules():
        rounded = [
            buffer
            for name, buffer in module.named_buffers(recurse=False)
            if name.endswith("inv_freq") and buffer.dtype != torch.float32
        ]
        if not rounded:
            continue
        make: Any = type(module)
        for name, buffer in make(config=module.config).named_buffers(recurse=False):
            module._buffers[name] = buffer.to(rounded[0].device)
        restored += 1
    return restored
