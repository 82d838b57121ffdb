"""Inconsistencies between the vLLM servers and the pinned GPUs of a hardware profile."""

from collections.abc import Iterable, Iterator

from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec, WeightSync
from workers.contract.run.problem import Problem
from workers.contract.run.spec import is_address
from workers.contract.wire.names import MAX_GPUS, MAX_SERVERS

MAX_SHARED_UTILIZATION = 0.9
"""Maximum memory share of a server on a GPU that it shares with the trainer, which needs at least a tenth."""
MAX_GPU_INDEX = 1023
MAX_CACHE_GIB = 1024
"""Maximum KV cache: more than any GPU has."""
MAX_WARM_MINUTES = 24 * 60
PORTS = range(1024, 65536)


def pin_problems(spec: HardwareSpec) -> Iterator[Problem]:
    """Yield contradictions among pinned GPUs, and between them and the counts."""
    yield from _indexes("trainer_gpu_ids", spec.trainer_gpu_ids, spec.trainer_gpus, "trainer GPUs")
    server = spec.server
    if spec.rollout != Rollout.SERVER or server is None or server.attached:
        return
    if server.shared and server.gpu_ids:
        yield Problem("server_gpu_ids", "Shared servers run on the trainer's GPUs. Name none here, or don't share.")
        return
    gpu_count = server.count * server.gpus
    yield from _indexes("server_gpu_ids", server.gpu_ids, gpu_count, f"GPUs of {server.count} × {server.gpus}")
    shared = sorted(set(server.gpu_ids) & set(spec.trainer_gpu_ids))
    if shared:
        fix = "Name another, or choose to share the trainer's GPUs."
        yield Problem("server_gpu_ids", f"GPU {shared[0]} is also the trainer's.", fix)


def _indexes(name: str, ids: tuple[int, ...], gpu_count: int, gpus: str) -> Iterator[Problem]:
    if not ids:
        return
    duplicates = sorted({index for index in ids if ids.count(index) > 1})
    if duplicates:
        yield Problem(name, f"GPU {duplicates[0]} is named twice.")
    if min(ids) < 0 or max(ids) > MAX_GPU_INDEX:
        yield Problem(name, f"GPU indexes must be between 0 and {MAX_GPU_INDEX}.")
    if len(ids) != gpu_count:
        yield Problem(name, f"{len(ids)} named for {gpu_count} {gpus}. Name each one, or none.")


def servers(spec: HardwareSpec, server: ServerSpec) -> Iterator[Problem]:
    if server.request_timeout_s < 1:
        yield Problem("server_request_timeout_s", "The servers need some time to respond.")
    if server.keep_warm_minutes:
        yield from _warm_problems(server)
    if server.attached:
        yield from _addresses(server.attached)
    else:
        yield from _own_servers(server)
        yield from _shared(spec, server)
    if server.weight_sync == WeightSync.NCCL:
        yield from _over_nccl(spec, server)


def _own_servers(server: ServerSpec) -> Iterator[Problem]:
    if not 1 <= server.count <= MAX_SERVERS:
        yield Problem("server_count", f"A run can have 1 to {MAX_SERVERS} servers.")
    if server.tensor_parallel < 1:
        yield Problem("server_tensor_parallel", "At least 1, for whole layers on one GPU.")
    if server.data_parallel < 1:
        yield Problem("server_data_parallel", "At least 1, for one copy of the model.")
    product = server.tensor_parallel * server.data_parallel
    # A server with 0 GPUs runs on the CPU.
    if server.gpus < 0 or (server.gpus != product and (server.gpus or product > 1)):
        yield Problem("server_gpus", f"Tensor parallel × data parallel makes {count(product)} for each server.")
    elif server.count * server.gpus > MAX_GPUS:
        yield Problem(
            "server_gpus", f"A host has at most {MAX_GPUS} GPUs, but the servers need {server.count * server.gpus}."
        )
    if not 0 < server.gpu_memory_utilization <= 1:
        yield Problem("server_gpu_memory_utilization", "The share must be above 0 and at most 1.")
    if server.kv_cache_gib is not None and not 0 < server.kv_cache_gib <= MAX_CACHE_GIB:
        yield Problem("server_kv_cache_gib", f"The KV cache must be above 0 and at most {MAX_CACHE_GIB} GiB.")
    if server.max_model_len is not None and server.max_model_len < 1:
        yield Problem("server_max_model_len", "The length must be at least 1.")
    if server.ready_timeout_s < 1:
        yield Problem("server_ready_timeout_s", "A server needs some time to start.")
    if server.port is not None and not (server.port in PORTS and server.port + server.count - 1 in PORTS):
        yield Problem("server_port", f"Ports must be between {PORTS[0]} and {PORTS[-1]}, the last server's too.")


def _warm_problems(server: ServerSpec) -> Iterator[Problem]:
    name = "server_keep_warm_minutes"
    if not 0 < server.keep_warm_minutes <= MAX_WARM_MINUTES:
        yield Problem(name, f"A server can stay for 1 to {MAX_WARM_MINUTES} minutes; with 0, it ends with its run.")
    if server.attached:
        yield Problem(name, "The run doesn't end servers that somebody else runs.", "Set it to 0.")
    elif server.shared:
        yield Problem(name, "A server on the trainer's own GPUs ends with its run.", "Set it to 0.")
    elif server.weight_sync == WeightSync.NCCL:
        yield Problem(
            name,
            "Weights sent over NCCL replace the server's own, so no other run may use it.",
            "Send a LoRA over HTTP.",
        )


def _shared(spec: HardwareSpec, server: ServerSpec) -> Iterator[Problem]:
    if not server.shared:
        return
    if spec.trainer_gpus == 0:
        yield Problem("server_shared", "There is no GPU to share, because the trainer has none.")
    elif server.count * server.gpus > spec.trainer_gpus:
        yield Problem(
            "server_shared",
            f"The servers need {count(server.count * server.gpus)}, but the trainer has {spec.trainer_gpus} to share.",
        )
    if MAX_SHARED_UTILIZATION < server.gpu_memory_utilization <= 1:
        yield Problem(
            "server_gpu_memory_utilization",
            f"A share of {server.gpu_memory_utilization:g} leaves no room for the trainer on the same GPU.",
            f"Use at most {MAX_SHARED_UTILIZATION}.",
        )


def _over_nccl(spec: HardwareSpec, server: ServerSpec) -> Iterator[Problem]:
    if server.servers > 1:
        yield Problem(
            "server_weight_sync", f"NCCL updates one server, but there are {server.servers}.", "Send a LoRA over HTTP."
        )
    if server.shared and not server.attached:
        yield Problem(
            "server_weight_sync", "NCCL refuses a server on the trainer's own GPU.", "Send a LoRA adapter over HTTP."
        )
    if spec.trainer_gpus < 1 or (server.gpus < 1 and not server.attached):
        yield Problem("server_weight_sync", "NCCL needs a GPU for the server and another for the trainer.")


def _addresses(attached: Iterable[str]) -> Iterator[Problem]:
    name, addresses = "server_attached", list(attached)
    if len(addresses) > MAX_SERVERS:
        yield Problem(name, f"A run can have at most {MAX_SERVERS} servers.")
    for address in addresses:
        if not is_address(address):
            yield Problem(name, f"{quote(address)} is not of the form http://host:port, with nothing before or after.")
    repeated_addresses = [address for address in dict.fromkeys(addresses) if addresses.count(address) > 1]
    if repeated_addresses:
        yield Problem(name, f"{quote(repeated_addresses[0])} is named twice.")


def count(gpus: int) -> str:
    return f"{gpus} GPU{'' if gpus == 1 else 's'}"


def quote(value: str) -> str:
    return value if len(value) <= 60 else value[:59] + "…"
