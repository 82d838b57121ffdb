"""Each shipped profile on the hardware that it names: what it leases, and the commands that come of it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace

import pytest

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.shipped import SHIPPED_PROFILES, by_slug
from runs.engine.scheduling.leasing import Shortage, allocate, need_of
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import (
    AttemptSpec,
    DataSpec,
    ModelSpec,
    Placement,
    RewardSpec,
    RunSpec,
    servers_of,
)
from workers.contract.stack import commands
from workers.contract.stack.commands import Programs
from workers.contract.wire.documents import from_dict, to_dict

PROGRAMS = Programs(trainer=("/env/bin/python", "-m", "workers.trainer"), vllm=("/env/bin/vllm",))
COMMON = (
    "--logprobs-mode processed_logprobs --max-logprobs -1 --generation-config vllm "
    "--enable-prefix-caching --disable-uvicorn-access-log"
)
NCCL = """--weight-transfer-config '{"backend": "nccl"}'"""
SEGMENTS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
QUIET = {"TOKENIZERS_PARALLELISM": "false"}
SPAWN = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}


def lora(rank: int) -> str:
    modules = "q_proj k_proj v_proj o_proj"
    return f"--enable-lora --max-lora-rank {rank} --max-loras 1 --lora-target-modules {modules}"


@dataclass(frozen=True)
class Served:
    gpus: str
    options: str
    port: int = 21000
    name: str = "r1-1"


@dataclass(frozen=True)
class Expected:
    """What a profile makes of a host: GPUs as CUDA_VISIBLE_DEVICES has them."""

    host_gpus: int
    trainer: str
    servers: tuple[Served, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    group_port: int | None = None
    cpu_slots: tuple[int, ...] = ()
    attached: tuple[str, ...] = ()


def one(share: float, length: int, graphs: int, *, dtype: str = "auto", tp: int = 1) -> str:
    """`graphs`: the completions that one generation asks of this server."""
    sizes = f"--max-model-len {length} --max-cudagraph-capture-size {graphs}"
    memory = f"--gpu-memory-utilization {share} {COMMON} {sizes}"
    return f"--dtype {dtype} --tensor-parallel-size {tp} {memory}"


EXPECTED: dict[str, Expected] = {
    "cpu": Expected(0, "", cpu_slots=(0,)),
    "one-gpu-colocate": Expected(1, "0", environment=QUIET),
    "one-gpu-shared-server": Expected(
        1, "0", (Served("0", f"{one(0.6, 512, 32)} {lora(16)}"),), environment={**SEGMENTS, **QUIET}
    ),
    "dual-gpu": Expected(
        2, "0", (Served("1", f"{one(0.8, 512, 32)} {NCCL}"),), environment={**SEGMENTS, **QUIET}, group_port=21001
    ),
    "dual-gpu-hot-swap": Expected(
        2, "0", (Served("1", f"{one(0.8, 512, 32)} {lora(16)}"),), environment={**SEGMENTS, **QUIET}
    ),
    "three-gpus": Expected(
        3, "0,1", (Served("2", f"{one(0.8, 1024, 64)} {NCCL}"),), environment={**SEGMENTS, **QUIET}, group_port=21001
    ),
    "four-gpus-tp2": Expected(
        4, "0,1", (Served("2,3", f"{one(0.8, 1024, 64, tp=2)} {NCCL}"),), environment=QUIET, group_port=21001
    ),
    "two-servers-load-balanced": Expected(
        4,
        "0,1",
        (
            Served("2", f"{one(0.8, 1024, 32)} {lora(16)}"),
            Served("3", f"{one(0.8, 1024, 32)} {lora(16)}", port=21001, name="r1-1-vllm-2"),
        ),
        environment={**SEGMENTS, **QUIET},
    ),
    "consumer-8gb": Expected(2, "0,1"),
    "16gb-conservative": Expected(1, "0"),
    "16gb-standard": Expected(1, "0"),
    "16gb-aggressive": Expected(1, "0"),
    "guide-8b": Expected(1, "0", (Served("0", f"{one(0.5, 4096, 16, dtype='bfloat16')} {lora(16)}"),)),
    "guide-14b": Expected(1, "0", (Served("0", f"{one(0.45, 4096, 16, dtype='bfloat16')} {lora(16)}"),)),
    "guide-24b": Expected(1, "0", (Served("0", f"{one(0.3, 4096, 16, dtype='bfloat16')} {lora(16)}"),)),
    "seven-plus-one-zero3": Expected(
        8, "0,1,2,3,4,5,6", (Served("7", f"{one(0.85, 8192, 56)} {NCCL}"),), environment=SPAWN, group_port=21001
    ),
    "three-plus-one-zero3": Expected(
        4, "0,1,2", (Served("3", f"{one(0.85, 8192, 24)} {NCCL}"),), environment=SPAWN, group_port=21001
    ),
    "attached-server": Expected(
        1, "0", environment={**SEGMENTS, **QUIET}, group_port=21000, attached=("http://127.0.0.1:8000",)
    ),
}
ROWS = [pytest.param(slug, expected, id=slug) for slug, expected in EXPECTED.items()]


def a_host(gpus: int) -> Host:
    """As a host announces itself; not in the database."""
    memory = {"memory_mib": 81_559, "used_mib": 3}
    cards = [{"index": index, "name": "GPU", **memory} for index in range(gpus)]
    return Host(name="box", inventory={"gpus": cards, "cpu_slots": 1, "port_range": [21000, 21999]})


def attempt(slug: str, host: Host, **changes: object) -> AttemptSpec:
    """Placed as a launch places it, and through JSON as a host gets it."""
    profile = by_slug(slug)
    hardware: HardwareSpec = replace(profile.spec, **changes)
    placement = allocate(need_of(hardware), host, {})
    assert isinstance(placement, Placement), placement.text
    run = RunSpec(
        run_id="r1",
        name="a run",
        kind="train",
        model=ModelSpec("/models/m"),
        data=DataSpec(name="sums", version=1, sha256="0" * 64, rows=100),
        rewards=(RewardSpec("format", "think_tags"),),
        hardware=hardware,
        grpo=dict(profile.batch),
        lora=profile.lora,
    )
    spec = AttemptSpec("r1-1", 1, 1, run, placement)
    return from_dict(AttemptSpec, to_dict(spec))


def test_every_shipped_profile_is_in_the_table():
    assert list(EXPECTED) == [profile.slug for profile in SHIPPED_PROFILES]


@pytest.mark.parametrize(("slug", "expected"), ROWS)
def test_it_leases_what_it_names(slug, expected):
    placement = attempt(slug, a_host(expected.host_gpus)).placement
    assert ",".join(map(str, placement.gpus)) == expected.trainer
    assert placement.ports == tuple(server.port for server in expected.servers)
    assert placement.group_port == expected.group_port
    assert placement.cpu_slots == expected.cpu_slots


@pytest.mark.parametrize(("slug", "expected"), ROWS)
def test_its_servers_get_exactly_these_command_lines(slug, expected):
    spec = attempt(slug, a_host(expected.host_gpus))
    lines = [
        f"/env/bin/vllm serve /models/m --host 127.0.0.1 --port {server.port} --served-model-name {server.name} "
        f"{server.options}"
        for server in expected.servers
    ]
    found = [commands.server_argv(spec, server, PROGRAMS) for server in commands.own_servers(spec)]
    assert found == [shlex.split(line) for line in lines]


@pytest.mark.parametrize(
    ("changes", "largest"),
    [
        ({"grpo": {"per_device_train_batch_size": 4, "num_generations": 4}}, 8),
        ({"grpo": {"per_device_train_batch_size": 300, "num_generations": 4}}, 304),
        ({"grpo": {"per_device_train_batch_size": 8, "per_device_eval_batch_size": 64, "num_generations": 8}}, 64),
        ({"grpo": {"per_device_train_batch_size": 512, "num_generations": 8}}, 0),
        ({"kind": "serve"}, 0),
    ],
)
def test_graphs_go_up_to_what_a_run_asks_for_at_once(changes, largest):
    run = attempt("dual-gpu", a_host(2)).run
    assert commands.largest_graph(replace(run, **changes)) == largest


def test_a_profile_may_ask_for_graphs_of_all_sizes():
    run = attempt("dual-gpu", a_host(2)).run
    hardware = replace(run.hardware, server=replace(run.hardware.server, all_graphs=True))
    assert commands.largest_graph(replace(run, hardware=hardware)) == 0


def test_a_profile_may_give_the_kv_cache_its_size():
    spec = attempt("dual-gpu", a_host(2))
    hardware = replace(spec.run.hardware, server=replace(spec.run.hardware.server, kv_cache_gib=1.5))
    spec = replace(spec, run=replace(spec.run, hardware=hardware))
    [argv] = [commands.server_argv(spec, server, PROGRAMS) for server in commands.own_servers(spec)]
    assert argv[argv.index("--kv-cache-memory-bytes") + 1] == str(3 * 2**29)


@pytest.mark.parametrize(("slug", "expected"), ROWS)
def test_its_servers_get_exactly_these_variables(slug, expected):
    spec = attempt(slug, a_host(expected.host_gpus))
    for server, place_ in zip(expected.servers, commands.own_servers(spec), strict=True):
        road = "VLLM_SERVER_DEV_MODE" if expected.group_port else "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
        assert commands.server_environment(spec, place_) == {
            "VLLM_WORKER_MULTIPROC_METHOD": "fork",
            **expected.environment,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": server.gpus,
            "VLLM_NO_USAGE_STATS": "1",
            road: "1",
        }


@pytest.mark.parametrize(("slug", "expected"), ROWS)
def test_its_trainer_gets_exactly_this_command_and_these_variables(slug, expected):
    spec = attempt(slug, a_host(expected.host_gpus))
    assert commands.trainer_argv("/runs/r1/1", PROGRAMS) == [*PROGRAMS.trainer, "/runs/r1/1"]
    assert commands.trainer_environment(spec) == {
        "TORCH_CUDNN_SDPA_PREFERRED": "0",
        **expected.environment,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": expected.trainer,
    }
    assert spec.run.hardware.processes == max(len(spec.placement.gpus), 1)


def test_a_profile_may_have_torchs_own_choice_of_attention():
    spec = attempt("dual-gpu", a_host(2))
    chosen = {"TORCH_CUDNN_SDPA_PREFERRED": "1"}
    own = replace(spec, run=replace(spec.run, hardware=replace(spec.run.hardware, environment=chosen)))
    assert commands.trainer_environment(own).items() >= chosen.items()


@pytest.mark.parametrize(("slug", "expected"), ROWS)
def test_its_trainer_asks_these_servers(slug, expected):
    spec = attempt(slug, a_host(expected.host_gpus))
    addresses = [f"http://127.0.0.1:{server.port}" for server in expected.servers]
    assert [server.address for server in servers_of(spec)] == addresses + list(expected.attached)


@pytest.mark.parametrize(("slug", "expected"), [row for row in ROWS if row.values[1].host_gpus])
def test_on_a_host_with_a_gpu_less_it_is_refused_with_both_numbers(slug, expected):
    short = allocate(need_of(by_slug(slug).spec), a_host(expected.host_gpus - 1), {})
    has = {0: "no GPUs", 1: "1 GPU"}.get(expected.host_gpus - 1, f"{expected.host_gpus - 1} GPUs")
    assert isinstance(short, Shortage)
    assert short.text == f"host box has {has}; this run needs {expected.host_gpus}"


def test_the_cpu_profile_is_refused_without_a_slot():
    host = Host(name="box", inventory={"gpus": [], "cpu_slots": 0})
    short = allocate(need_of(by_slug("cpu").spec), host, {})
    assert isinstance(short, Shortage)
    assert "CPU slot" in short.text


def test_servers_pinned_as_in_the_original_guide_take_its_gpus_and_ports():
    server = replace(by_slug("two-servers-load-balanced").spec.server, gpu_ids=(0, 1), port=8000)
    spec = attempt("two-servers-load-balanced", a_host(4), server=server, trainer_gpu_ids=(2, 3))
    assert [(s.port, s.gpus) for s in servers_of(spec)] == [(8000, (0,)), (8001, (1,))]
    assert spec.placement.gpus == (2, 3)


def test_copies_of_a_model_in_one_server_share_one_front_that_knows_each_adapter():
    server = replace(by_slug("dual-gpu-hot-swap").spec.server, gpus=2, data_parallel=2)
    spec = attempt("dual-gpu-hot-swap", a_host(3), server=server)
    (place_,) = commands.own_servers(spec)
    line = " ".join(commands.server_argv(spec, place_, PROGRAMS))
    assert "--data-parallel-size 2 --api-server-count 1" in line
    assert place_.gpus == (1, 2)


def test_a_pinned_gpu_that_the_host_lacks_is_named():
    spec = replace(by_slug("dual-gpu").spec, trainer_gpu_ids=(7,))
    short = allocate(need_of(spec), a_host(2), {})
    assert isinstance(short, Shortage)
    assert short.text == "host box has no GPU 7, which this run's profile requires"
