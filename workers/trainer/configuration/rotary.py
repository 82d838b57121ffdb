"""Rotary frequencies at full precision.

Under ZeRO-3, transformers builds the model inside DeepSpeed's zero.Init, where new floating tensors take the weights'
type. In bf16 the rotary frequencies lose sixteen bits, and at positions of some hundreds the angles are off by tenths
of a radian: a policy unlike the one that vLLM samples from, and the one served later. On a 3B shape its log
probabilities were 0.097 per token away from vLLM's, where 0.02 is usual.
"""

from __future__ import annotations

from typing import Any

import torch


def restore(model: torch.nn.Module) -> int:
    """Recompute, outside of any context, the frequencies that aren't fp32. Return the number of modules changed.

    Raises TypeError for a rotary embedding that isn't built from its config as in transformers.
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
