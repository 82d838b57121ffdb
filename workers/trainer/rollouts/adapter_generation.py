"""Generation by vLLM servers that load the policy as a LoRA adapter, saved under a new name for each version.

TRL streams all weights to a server over NCCL, which needs a GPU on both sides and vLLM's development routes. A LoRA run
needs neither: an adapter of a few megabytes is loaded over HTTP. The name is new each time, because vLLM continues to
use its prefix cache when the files of an old name change.
"""

import contextlib
import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from torch.distributed.tensor import DTensor
from trl.trainer import grpo_trainer

from workers.contract.run.hardware import Rollout, WeightSync
from workers.contract.run.spec import AttemptSpec
from workers.contract.stack.commands import AWAIT_SERVERS
from workers.contract.wire.names import FileName
from workers.trainer.configuration.spec import SpecError
from workers.trainer.rollouts import fanout

ADAPTERS = "adapters"
"""Subfolder of the attempt's folder that contains the adapter in use."""
POLL_S = 0.05


@contextlib.contextmanager
def rollouts(spec: AttemptSpec, folder: Path, stage: Callable[[str], None]) -> Iterator[fanout.ServerFanout | None]:
    """Let a GRPOTrainer that is created in this context generate as the spec says, and yield the servers of a LoRA run,
    or None. TRL creates its generation backend in its constructor, by a name in its module: this is the only place
    where another backend can be substituted without importing vllm, which a trainer that only uses HTTP doesn't need.
    By then TRL has loaded the model, and the servers must be ready."""
    server = spec.run.hardware.server
    if spec.run.hardware.rollout is not Rollout.SERVER or server is None:
        yield None
        return
    original = generation = grpo_trainer.VLLMGeneration
    servers = None
    if server.weight_sync is WeightSync.LORA:
        servers = fanout.connect(spec)
        generation = functools.partial(AdapterGeneration, folder=folder / ADAPTERS, servers=servers)

    def once_ready(*arguments: Any, **settings: Any) -> Any:
        await_servers(folder, stage)
        return generation(*arguments, **settings)

    grpo_trainer.VLLMGeneration = once_ready
    try:
        yield servers
    finally:
        grpo_trainer.VLLMGeneration = original


def await_servers(folder: Path, stage: Callable[[str], None]) -> None:
    """Wait until the supervisor reports all servers as ready, if it asked the trainer to wait. There is no deadline,
    because the supervisor ends the trainer if they never become ready."""
    ready_file = folder / FileName.SERVERS_READY
    if not os.environ.get(AWAIT_SERVERS) or ready_file.exists():
        return
    stage("waiting for vLLM")
    while not ready_file.exists():
        time.sleep(POLL_S)


class AdapterGeneration:
    """Substitute for TRL's VLLMGeneration, with sync_weights, generate and a vllm_client."""

    def __init__(
        self,
        *,
        folder: Path,
        servers: fanout.ServerFanout,
        model: Any,
        accelerator: Any,
        **settings: Any,
    ) -> None:
        """Create the backend. `settings`: TRL's sampling arguments; those for NCCL and colocation don't apply."""
        self._model = model
        self._accelerator = accelerator
        self._settings = settings
        self._folder = folder
        self._version = 0
        self.max_completion_length: int = settings["max_completion_length"]
        """Maximum number of tokens of one generation; episodes lower it for a turn."""
        self.vllm_client = servers
        if accelerator.is_main_process:
            self.vllm_client.check()
            shutil.rmtree(folder, ignore_errors=True)  # left by an earlier trainer of this folder
        accelerator.wait_for_everyone()

    def sync_weights(self) -> None:
        """Load the current policy on all servers before any of them generates."""
        self._version += 1
        path = self._folder / self.vllm_client.adapter_name(self._version)
        _save_adapter(self._model, path, self._accelerator)
        if self._accelerator.is_main_process:
            replaced = self.vllm_client.use_adapter(path.name, path)
            if replaced is not None:
                shutil.rmtree(self._folder / replaced)
        self._accelerator.wait_for_everyone()

    def generate(
        self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None
    ) -> tuple[list[list[int]], list[list[int]], list[list[list[float | None]]], None]:
        """Generate and return (prompt ids, completion ids, log-probabilities of the sampled tokens, None), with one
        item for each of this rank's prompts. `prompts` contains each prompt num_generations times; a server gets it
        once. Rank 0 sends all requests."""
        if images is not None:
            raise SpecError("Prompts with images can't be sent to the servers.")
        all_prompts = gather_object(prompts)
        completions: list[Any] = [None]
        if self._accelerator.is_main_process:
            with profiler or contextlib.nullcontext():
                completions = [
                    self.vllm_client.complete(all_prompts[::num_generations], self.sampling(num_generations))
                ]
        broadcast_object_list(completions, from_process=0)
        start = self._accelerator.process_index * len(prompts)
        own_completions = completions[0][start : start + len(prompts)]
        return (
            prompts,
            [ids for ids, _ in own_completions],
            [[[value] for value in values] for _, values in own_completions],
            None,
        )

    def sampling(self, n: int) -> dict[str, Any]:
        return {"n": n, "max_tokens": self.max_completion_length, **sampling_parameters(self._settings)}


def _save_adapter(model: Any, path: Path, accelerator: Any) -> None:
    """Write the policy's LoRA adapter on rank 0, however the ranks shard its parameters. All ranks must call this. With
    ZeRO-3 each rank has empty parameters, and with FSDP2 shards: both are gathered for writing."""
    trainable = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    gathering: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if any(hasattr(parameter, "ds_id") for _, parameter in trainable):
        import deepspeed

        gathering = deepspeed.zero.GatheredParameters([parameter for _, parameter in trainable])
    with gathering:
        full_tensors = {name: _full_tensor(parameter, accelerator.device) for name, parameter in trainable}
        if accelerator.is_main_process:
            model.save_pretrained(
                str(path), selected_adapters=["default"], save_embedding_layers=False, state_dict=full_tensors
            )


def _full_tensor(parameter: torch.nn.Parameter, device: torch.device) -> torch.Tensor:
    data = parameter.detach()
    if not isinstance(data, DTensor):
        return data
    if data.device.type != device.type:  # offloaded shards: the ranks exchange them through their GPUs
        data = data.to(device)
    return data.full_tensor()


def sampling_parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert TRL's sampling settings to parameters for vLLM's API."""
    parameters = {name: settings[name] for name in ("temperature", "top_p", "top_k", "repetition_penalty")}
    parameters["min_p"] = settings["min_p"] or 0.0
    if settings.get("structured_outputs_regex") is not None:
        parameters["structured_outputs"] = {"regex": settings["structured_outputs_regex"]}
    return {**parameters, **(settings.get("generation_kwargs") or {})}
