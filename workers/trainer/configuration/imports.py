"""Faster imports for the trainer, its jobs and vLLM: imports take half of a warm start."""

import functools
import gc
import importlib.metadata
import os
from collections.abc import Iterator
from contextlib import contextmanager

from workers.contract.run.hardware import Rollout, WeightSync
from workers.contract.run.spec import RunSpec
from workers.contract.stack.commands import KEEP_FROZEN


@contextmanager
def speed_up() -> Iterator[None]:
    """Speed up imports of torch, transformers, TRL and vLLM while the context is open. The garbage collector would
    traverse the millions of permanent objects that they create, which takes a fifth of the time. Afterwards these are
    frozen, as vLLM collects a dozen times more. transformers and TRL would each search all packages for a second."""
    os.environ.setdefault(KEEP_FROZEN, "1")
    importlib.metadata.packages_distributions = functools.cache(importlib.metadata.packages_distributions)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def skip_vllm(run: RunSpec) -> None:
    """Keep TRL from importing vLLM if the run doesn't need it. Call this before TRL's trainer is imported. TRL imports
    vLLM wherever it is installed, which takes as long as torch and TRL. A trainer that generates itself, or sends
    adapters over HTTP, has no use for it."""
    server = run.hardware.vllm_server
    streams = server is not None and server.weight_sync is WeightSync.NCCL  # with vLLM's communicator
    if run.hardware.rollout is Rollout.COLOCATE or streams:
        return
    from trl import import_utils

    import_utils.is_vllm_available = lambda min_version=None: False
