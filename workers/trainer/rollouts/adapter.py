"""Saves the policy's LoRA adapter, however the ranks shard its parameters."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor


def save(model: Any, path: Path, accelerator: Any) -> None:
    """Write the adapter on rank 0. All ranks must call this.

    ZeRO-3 leaves each rank an empty parameter, and FSDP2 a shard: both are gathered for writing.
    """
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    with _gathered([parameter for _, parameter in trained]):
        full_tensors = {name: _whole(parameter, accelerator.device) for name, parameter in trained}
        if accelerator.is_main_process:
            model.save_pretrained(
                str(path), selected_adapters=["default"], save_embedding_layers=False, state_dict=full_tensors
            )


def _gathered(parameters: list[torch.nn.Parameter]) -> contextlib.AbstractContextManager[Any]:
    if not any(hasattr(parameter, "ds_id") for parameter in parameters):
        return contextlib.nullcontext()
    import deepspeed

    gathered: contextlib.AbstractContextManager[Any] = deepspeed.zero.GatheredParameters(parameters)
    return gathered


def _whole(parameter: torch.nn.Parameter, device: torch.device) -> torch.Tensor:
    data = parameter.detach()
    if not isinstance(data, DTensor):
        return data
    if data.device.type != device.type:  # offloaded shards: the ranks exchange them through their GPUs
        data = data.to(device)
    return data.full_tensor()
