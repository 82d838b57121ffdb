"""The process environment, set before torch and the Hugging Face libraries are imported and read it."""

import os
import socket
from pathlib import Path

from workers.contract.run import jobs
from workers.contract.run.hardware import Rollout
from workers.contract.run.spec import AttemptSpec, models_of, servers_of
from workers.contract.stack import commands
from workers.trainer.configuration.spec import is_local


def prepare(spec: AttemptSpec) -> None:
    """Set this process's environment. The host's settings override all defaults except telemetry, which is off."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["DO_NOT_TRACK"] = "1"
    # The trainer forks data workers after tokenizing, and the tokenizer's threads would be lost there with a warning.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    uses_hub = jobs.kind_of(spec.run.kind).pushes or jobs.kind_of(spec.run.kind).fetches
    if not uses_hub and not any(needs_hub(model.path) for model in models_of(spec.run)):
        # Each request to an unreachable hub costs tens of seconds of retries.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if spec.run.episodes is not None:
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # its warning about rollout_func, which episodes use
    wait_without_spinning()
    for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
        del os.environ[name]  # set by `accelerate launch`, whose file may contradict the spec
    if spec.run.hardware.rollout is Rollout.SERVER and any(server.own for server in servers_of(spec)):
        # vLLM's side of the weight transfer listens here; by default it would listen on an external interface.
        os.environ.setdefault("VLLM_HOST_IP", "127.0.0.1")
    if spec.run.hardware.rollout is Rollout.COLOCATE and not commands.has_ranks(spec):
        os.environ.setdefault("MASTER_PORT", str(_free_port()))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # otherwise the interface of the host's name
    for name, value in spec.run.hardware.environment.items():  # a supervisor or script has already set them
        os.environ.setdefault(name, value)
    if all(server.own or server.warm for server in servers_of(spec)):
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")  # all of the run's processes are on this host
    if spec.run.hardware.threads:
        os.environ["OMP_NUM_THREADS"] = str(spec.run.hardware.threads)


def _free_port() -> int:
    """Find a free port for the single-process group that vLLM creates inside a trainer. TRL would use 29500 whenever
    it is free, so two trainers that start at the same time on one host would share it."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def wait_without_spinning() -> None:
    """Let OpenMP's idle threads sleep instead of spinning. Spinning is slightly faster on dedicated cores, but on
    shared ones (a demo with its web server) it made training sixteen times slower."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def needs_hub(model: str) -> bool:
    """Return whether the model is a hub id that is not cached."""
    if is_local(model):
        return False
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    snapshots = cache / f"models--{model.replace('/', '--')}" / "snapshots"
    return not any(snapshots.glob("*/config.json"))


def rank() -> int:
    """Return this process's rank, or 0 without a launcher."""
    return int(os.environ.get("RANK", "0"))


def local_rank() -> int:
    """Return the index of this process's GPU among the visible ones."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_inside_launcher() -> bool:
    """Return whether torchrun or `accelerate launch` started this process as a rank."""
    return "LOCAL_RANK" in os.environ
