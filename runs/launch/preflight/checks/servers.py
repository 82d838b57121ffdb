"""Checks of vLLM servers: parallelism, ports, weight transfer, warm servers and external ones."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from runs.launch.preflight.draft import Draft, HostFacts
from runs.launch.preflight.finding import Finding, note, stop, warn
from runs.launch.preflight.hosts import fitting_hosts
from workers.contract.run.hardware import Rollout, WeightSync
from workers.contract.wire.joining import is_loopback

MAX_TENSOR_PARALLEL = 16
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Keys under which configs of mixture-of-experts models have their number of experts."""


def check_parallelism(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is None:
        return
    if draft.server and not draft.server.attached:
        yield from _heads(draft, draft.server.tensor_parallel, "the vLLM server")
        if draft.server.data_parallel > 1 and _is_dense(draft):
            yield warn(
                "profile",
                f"The profile runs {draft.server.data_parallel} data-parallel ranks in one vLLM server, which is meant "
                "for mixture-of-experts models, but this model is dense.",
                "Use several servers or tensor parallelism instead.",
            )
    if draft.hardware.rollout == Rollout.COLOCATE:
        yield from _heads(draft, draft.hardware.colocate_tensor_parallel, "the colocated vLLM")


def can_split(heads: int, kv_heads: int, size: int) -> bool:
    """Return whether vLLM can split the attention over `size` GPUs. Key-value heads are split or replicated."""
    kv = kv_heads or heads
    return heads % size == 0 and (kv % size == 0 or size % kv == 0)


def _heads(draft: Draft, size: int, engine: str) -> Iterator[Finding]:
    heads, kv_heads = draft.model_size("heads"), draft.model_size("kv_heads")
    if size < 2 or not heads or can_split(heads, kv_heads, size):
        return
    kv = f" and {kv_heads} key-value heads" if kv_heads and kv_heads != heads else ""
    sizes = [str(n) for n in range(1, MAX_TENSOR_PARALLEL + 1) if can_split(heads, kv_heads, n)]
    yield stop(
        "profile",
        f"The model has {heads} attention heads{kv}, which can't be split over {size} GPUs, the tensor "
        f"parallel size of {engine}.",
        f"Choose a profile with tensor parallelism {_join_with_or(sizes)}.",
    )


def _join_with_or(names: list[str]) -> str:
    return " or ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _is_dense(draft: Draft) -> bool:
    config = (draft.inspection or {}).get("config")
    return isinstance(config, dict) and bool(config) and not any(config.get(name) for name in EXPERT_COUNTS)


def check_ports(draft: Draft) -> Iterator[Finding]:
    server = draft.server
    if server is None or server.attached:
        return
    hosts = [host for host in fitting_hosts(draft) if host.usable]
    if server.port is None:
        yield from _free_ports(hosts, server.count + (server.weight_sync == WeightSync.NCCL))
        return
    ports = range(server.port, server.port + server.count)
    if not ports or ports[-1] > 65535:
        return  # the profile's own check_ports reports it
    problems = [_obstacle(host, ports) for host in hosts]
    if all(problems):
        yield from (finding for finding in problems if finding)
    yield from _outside_port_range(hosts, ports)


def _obstacle(host: HostFacts, ports: range) -> Finding | None:
    for port in ports:
        if port in host.ports_held:
            return warn(
                "profile",
                f"Port {port} on {host.name}, which the profile names, is held by the run {host.ports_held[port]}.",
                "This run waits for it. A profile without a port uses any free one.",
            )
        if port in host.listening:
            return stop(
                "profile",
                f"Port {port} on {host.name}, which the profile names, is in use: another program listens there.",
                "Choose another port in the profile, or leave it empty to use any free one.",
            )
    return None


def _outside_port_range(hosts: list[HostFacts], ports: range) -> Iterator[Finding]:
    is_single = len(ports) == 1
    subject = f"Port {ports[0]} is" if is_single else f"The ports {ports[0]} to {ports[-1]} are"
    for host in hosts:
        first, last = host.port_range
        if not (first <= ports[0] and ports[-1] <= last):
            yield note(
                "profile",
                f"{subject} outside the range that {host.name} reserves for vLLM servers ({first} to {last}), so other "
                f"programs may take {'it' if is_single else 'them'} first.",
            )


def _free_ports(hosts: list[HostFacts], count: int) -> Iterator[Finding]:
    """Warn of hosts with fewer than `count` free ports: one for each server and, with NCCL, one for the weights."""
    for host in hosts:
        first, last = host.port_range
        free_count = sum(port not in host.ports_held and port not in host.listening for port in range(first, last + 1))
        if free_count < count:
            yield warn(
                "host",
                f"The run needs {count} of the ports {first} to {last} that {host.name} reserves; free: {free_count}.",
                "Stop the programs that use them, or give the host a wider GRPO_PORT_RANGE.",
            )


def check_warm(draft: Draft) -> Iterator[Finding]:
    server = draft.server
    if server is None or not server.keep_warm_minutes:
        return
    warm_time = f"{server.keep_warm_minutes} minute{'' if server.keep_warm_minutes == 1 else 's'}"
    if draft.idle:
        yield note(
            "profile",
            f"Your warm server {draft.idle[0].run_id} has this model and these settings. The run uses it without "
            "waiting for vLLM to start, unless another of your runs takes it first.",
        )
    elif draft.lora:
        yield note(
            "profile",
            "None of your idle warm servers has this model and these settings. The run starts one, which stays for "
            f"{warm_time} after the run, or until another run needs its GPUs.",
        )


def check_attached(draft: Draft) -> Iterator[Finding]:
    server = draft.server
    if server is None or not server.attached:
        return
    has_several = len(server.attached) > 1
    yield warn(
        "profile",
        f"Nothing can be proved about {'servers' if has_several else 'a server'} that somebody else runs "
        f"({', '.join(server.attached)}): neither that {'they serve' if has_several else 'it serves'} this model "
        "unchanged and only to this run, nor that the GPU memory there is freed at the end. The receipt covers only "
        "the trainer.",
        "Use it only if you run the server yourself and nobody else trains with it.",
    )
    if server.weight_sync == WeightSync.LORA:
        yield from _adapters(draft, server.attached)
    else:
        yield from _stream(server.attached)
        yield from _kept_memory(draft)


def _adapters(draft: Draft, addresses: tuple[str, ...]) -> Iterator[Finding]:
    rank = draft.lora.r if draft.lora else 16
    yield note(
        "profile",
        "The server must have been started with --enable-lora, --max-lora-rank at least "
        f"{rank}, --max-loras at least 1 (3 with agents) and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1.",
    )
    remote = [address for address in addresses if not _is_local(address)]
    if remote:
        yield warn(
            "profile",
            f"The server at {remote[0]} loads each adapter from the run's folder on the host, so it must see that "
            "folder under the same path.",
            "Share the host's runs folder with the server's machine, or attach a server on the host itself.",
        )


def _stream(addresses: tuple[str, ...]) -> Iterator[Finding]:
    yield warn(
        "profile",
        "NCCL weight updates need a server started with VLLM_SERVER_DEV_MODE=1 and "
        '--weight-transfer-config \'{"backend":"nccl"}\'. The trainer must reach its GPUs over the network or NVLink '
        "and not share them, which is tested only when the first weights are sent.",
        "LoRA hot-swap needs no such connection.",
    )
    if not all(_is_local(address) for address in addresses):
        yield note(
            "profile",
            "Anyone who can connect to a server in development mode can change its weights. Keep it on a "
            "separate network.",
        )


def _kept_memory(draft: Draft) -> Iterator[Finding]:
    for host in draft.hosts:
        for gpu in host.gpus:
            if gpu.kept_mib:
                yield warn(
                    "profile",
                    f"GPU {gpu.index} of {host.name} has {gpu.kept_mib:,} MiB in use for earlier runs, kept by "
                    f"{', '.join(gpu.kept_by)}. This grows with each run that sends weights by NCCL, until no run can "
                    "start there.",
                    "Restart the server to release it.",
                )


def _is_local(address: str) -> bool:
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:
        return False
