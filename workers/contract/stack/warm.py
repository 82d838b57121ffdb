"""A warm server: vLLM that stays between runs of one model and one set of server settings. Standard library only.

It is a run of its own (jobs.WARM) with its own lease, claim, kill and receipt. Runs of the same person use it one after
the other. The base weights never change, since only adapters reach it: it is started without --weight-transfer-config
and without vLLM's development routes. Whatever it has loaded of one run is removed before the next one is served.
"""

import hashlib
import os
from dataclasses import asdict, replace
from pathlib import Path

from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.hardware import HardwareSpec, Rollout, WeightSync
from workers.contract.run.jobs import WARM, WarmSettings
from workers.contract.run.learnability import CHECK
from workers.contract.run.spec import LoraSpec, Placement, RunSpec, WarmPlace
from workers.contract.stack.commands import adapted_modules, adapter_slots, fitting_rank, largest_graph
from workers.contract.wire.documents import digest

KINDS = frozenset({"train", EVALUATION, CHECK})
"""Kinds of runs that may use a warm server. A trial of a profile measures its own start."""


def shares_servers(run: RunSpec) -> bool:
    """Return whether the run keeps its servers warm or uses warm ones."""
    server = run.hardware.vllm_server
    return (
        server is not None
        and server.keep_warm_minutes > 0
        and not (server.attached or server.shared)
        and server.weight_sync is WeightSync.LORA
        and run.lora is not None
        and run.kind in KINDS
    )


def key(run: RunSpec) -> str:
    """Hash what two runs must have in common to share a server, apart from the sizes of its CUDA graphs."""
    server = asdict(run.hardware.server) if run.hardware.server else {}
    lora = run.lora or LoraSpec()
    for name in ("attached", "shared", "keep_warm_minutes", "ready_timeout_s", "request_timeout_s", "all_graphs"):
        server.pop(name, None)
    return digest(
        {
            "model": run.model.path,
            "revision": run.model.revision or "",
            "remote_code": run.model.trust_remote_code,
            "rank": fitting_rank(lora),
            "modules": sorted(adapted_modules(lora)),
            "adapters": adapter_slots(run),
            "server": server,
            "environment": run.hardware.environment,
        }
    )


def fits(graphs: int, run: RunSpec) -> bool:
    """Return whether a server with these CUDA graphs (0 for all sizes) has those that the run's batches reach."""
    return not graphs or 0 < largest_graph(run) <= graphs


def spec_of(run: RunSpec, run_id: str) -> RunSpec:
    """Build the spec of the warm server that this run starts: the run's model, servers and LoRA, without its rewards
    and with defaults for its other settings."""
    lora = run.lora or LoraSpec()
    hardware = HardwareSpec(
        run.hardware.profile, rollout=Rollout.SERVER, server=run.hardware.server, environment=run.hardware.environment
    )
    return replace(
        run,
        run_id=run_id,
        name=f"{run.model.path.rstrip('/').rsplit('/', 1)[-1][:80]} · warm server",
        kind=WARM,
        rewards=(),
        eval_rewards=(),
        hardware=hardware,
        job=asdict(WarmSettings(graphs=largest_graph(run), adapters=adapter_slots(run))),
        **{**run.only("attn_implementation"), "lora": replace(lora, r=fitting_rank(lora))},
    )


def split(placement: Placement, run: RunSpec, attempt_id: str) -> tuple[Placement, Placement]:
    """Split a placement into the trainer's part, which uses the server of `attempt_id`, and the server's part."""
    server = run.hardware.server
    count = server.count if server else 0
    ports = placement.ports[:count]
    servers = Placement(
        placement.host, server_gpus=placement.server_gpus, ports=ports, lora_kernels=placement.lora_kernels
    )
    trainer_ports = placement.ports[count:]
    trainer = replace(
        placement, server_gpus=(), ports=trainer_ports, lora_kernels="", warm=WarmPlace(attempt_id, ports)
    )
    return trainer, servers


def model_files(path: str, revision: str | None) -> str:
    """Return a fingerprint of a model's current files on this host: a hash of a folder's names, sizes and times, or a
    hub model's commit; "" if there are none. A server that was started with other files has other weights."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return _commit(path, revision or "main")
    try:
        with os.scandir(folder) as entries:
            files = sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries)
    except OSError:
        return ""
    return hashlib.sha256(repr(files).encode()).hexdigest()


def _commit(model: str, revision: str) -> str:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser() / f"models--{model.replace('/', '--')}"
    try:
        return (cache / "refs" / revision).read_text().strip()
    except OSError:
        return revision if (cache / "snapshots" / revision).is_dir() else ""
