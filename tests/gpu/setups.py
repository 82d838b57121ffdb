"""The set-ups that are proved on GPUs, and the plans: which of them one sitting goes through, in order of risk."""

from __future__ import annotations

from dataclasses import replace

from tests.gpu.units import CONTEXT_GIB, Compared, Gain, Ratio, Setup, Starts, Turns, Unit, Way


def _batch(per_device: int, accumulation: int, generations: int, tokens: int) -> dict[str, int]:
    return {
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": accumulation,
        "num_generations": generations,
        "max_completion_length": tokens,
        "num_iterations": 1,
    }


COLOCATE = Setup(
    "colocate-1gpu",
    "one-gpu-colocate",
    "1.5b",
    1,
    "vLLM inside the trainer on one GPU, asleep while weights are updated; trains all weights of a 1.5B model.",
    profile={"colocate_memory_utilization": 0.3, "colocate_max_model_len": 1024, **_batch(16, 1, 8, 512)},
    kills=3,
)
SERVER = Setup(
    "server-1-plus-1",
    "dual-gpu",
    "1.5b",
    2,
    "A vLLM server on one GPU, the trainer on another; trains all weights of a 1.5B model, streamed by NCCL.",
    profile={"server_max_model_len": 1024, **_batch(16, 1, 8, 512)},
    kills=3,
)
TP2 = Setup(
    "server-tp2-plus-2",
    "four-gpus-tp2",
    "1.5b",
    4,
    "One vLLM server on two GPUs (tensor parallel), two trainers (DDP); all weights of a 1.5B model, by NCCL.",
    profile=_batch(8, 1, 8, 512),
)
ZERO3 = Setup(
    "zero3-3-plus-1",
    "three-plus-one-zero3",
    "3b",
    4,
    "All weights of a 3B model on three GPUs with ZeRO-3, a vLLM server on the fourth, weights by NCCL.",
    profile=_batch(8, 2, 6, 512),
    kills=3,
    limit_s=300,
)
EIGHT_GB = Setup(
    "zero2-offload-lora-2gpu",
    "consumer-8gb",
    "1.5b",
    2,
    "A LoRA of a 1.5B shape on two GPUs under a cap of 8 GiB each, context included: ZeRO-2 with the optimizer in the "
    "host's memory, completions by the trainer itself.",
    profile={"memory_cap_gib": 8 - CONTEXT_GIB, **_batch(4, 8, 8, 256)},
    steps=4,
)
EIGHT_GB_COLOCATE = Setup(
    "zero2-offload-lora-2gpu-colocate",
    "consumer-8gb",
    "1.5b",
    2,
    "The same training with vLLM inside each trainer in place of generation by the trainer, without the cap.",
    profile={
        "rollout": "colocate",
        "colocate_memory_utilization": 0.2,
        "colocate_max_model_len": 1024,
        **_batch(4, 8, 8, 512),
    },
    steps=4,
)
FOUR_BIT = Setup(
    "qlora-4bit-1gpu",
    "16gb-standard",
    "1.5b",
    1,
    "QLoRA of a 1.5B model in 4 bits on one GPU capped at 16 GiB, context included; the trainer generates.",
    profile={"memory_cap_gib": 16 - CONTEXT_GIB, **_batch(4, 4, 4, 128)},
    steps=4,
)

FOUR_BIT_COLOCATE = Setup(
    "qlora-4bit-colocate-1gpu",
    "16gb-standard",
    "1.5b",
    1,
    "QLoRA of a 1.5B shape in 4 bits on one GPU under a cap of 16 GiB, context included, with vLLM inside the trainer.",
    profile={
        "rollout": "colocate",
        "colocate_memory_utilization": 0.35,
        "colocate_max_model_len": 1024,
        "memory_cap_gib": 16 - CONTEXT_GIB,
        **_batch(4, 4, 4, 128),
    },
    steps=4,
)


def _sixteen_gb(level: str) -> Setup:
    return Setup(
        f"qlora-20b-16gb-{level}",
        f"16gb-{level}",
        "20b",
        1,
        "QLoRA of a 20B model in 4 bits, with the profile's own batch and lengths, on one GPU capped at 16 GiB, "
        "context included; the trainer generates.",
        profile={"memory_cap_gib": 16 - CONTEXT_GIB},
        steps=2,
        limit_s=330,
    )


SIXTEEN_GB = tuple(map(_sixteen_gb, ("aggressive", "standard", "conservative")))
SHARED = Setup(
    "shared-server-lora-1gpu",
    "one-gpu-shared-server",
    "1.5b",
    1,
    "A vLLM server and the trainer on one GPU: a LoRA adapter of a 1.5B model, swapped over HTTP.",
    profile={
        "server_gpu_memory_utilization": 0.35,
        "server_max_model_len": 1024,
        **_batch(16, 1, 8, 512),
    },
)
TWO_SERVERS = Setup(
    "two-servers-lora-2",
    "two-servers-load-balanced",
    "1.5b",
    4,
    "Two vLLM servers share each step's prompts, two trainers (DDP): a LoRA of a 1.5B shape, its adapter swapped over "
    "HTTP on both before either generates.",
    profile=_batch(16, 1, 8, 512),
)

_TINY = {
    **_batch(8, 1, 4, 24),
    "threads": 1,
    "trainer_gpus": 0,
    "processes": 1,
    "cpu_slots": 1,
    "environment": "",
}
CPU = Setup(
    "cpu-transformers", "cpu", "tiny", 0, "A rehearsal without a GPU.", profile=_TINY, steps=3, kills=2, limit_s=240
)
CPU_SERVER = Setup(
    "cpu-server",
    "dual-gpu",
    "tiny",
    0,
    "A rehearsal without a GPU: a stand-in for vLLM as the server.",
    profile={
        **_TINY,
        "max_completion_length": 96,
        "server_gpus": 0,
        "server_max_model_len": None,
        "server_weight_sync": "lora",
        "use_lora": True,
    },
    steps=3,
    limit_s=240,
)

IN_TURNS, ONE_AHEAD = Way("in turns"), Way("one step ahead", {"ahead": "on"})
AHEAD = Compared(
    "ahead-1-plus-1",
    "The same profile with generation one step ahead and without: all weights of a 1.5B shape, 32 completions of 256 "
    "tokens in four passes, so that the update takes about as long as generation.",
    replace(SERVER, name="ahead 1 + 1", profile={"server_max_model_len": 1024, **_batch(8, 4, 8, 256)}),
    (IN_TURNS, ONE_AHEAD, ONE_AHEAD, IN_TURNS),
    {"ahead_speedup": ("one step ahead", "in turns")},
)
TODAY = Way("today's profile")
FAST = Way("fast", {"ahead": "on", "per_device_train_batch_size": "32", "gradient_accumulation_steps": "1"})
THREE_WAYS = Compared(
    "three-ways-1-plus-1",
    "The shipped profile for two GPUs (4 completions per pass, 8 passes), a bare TRL script with its arguments, and "
    "the same training in one pass and with generation one step ahead; all weights of a 1.5B shape.",
    replace(SERVER, name="three ways 1 + 1", profile={"server_max_model_len": 1024, **_batch(4, 8, 8, 256)}),
    (TODAY, Way("bare TRL", bare=True), FAST),
    {"fast_over_today": ("fast", "today's profile"), "fast_over_bare": ("fast", "bare TRL")},
)
AHEAD_ON_CPU = replace(
    AHEAD, name="ahead-cpu", says="A rehearsal without a GPU.", setup=CPU_SERVER, runs=(IN_TURNS, ONE_AHEAD), steps=4
)
THREE_ON_CPU = replace(
    THREE_WAYS,
    name="three-ways-cpu",
    says="A rehearsal without a GPU or a server: the fast way is one of larger passes alone.",
    setup=replace(CPU, profile={**CPU.profile, **_batch(4, 2, 4, 24)}),
    runs=(
        TODAY,
        Way("bare TRL", bare=True),
        Way("fast", {"per_device_train_batch_size": "8", "gradient_accumulation_steps": "1"}),
    ),
    steps=4,
)

_WARM, _OWN = {"server_keep_warm_minutes": 15}, {"server_keep_warm_minutes": 0}
_OF_A_SERVER = (("first_step_s_cold", _WARM), ("first_step_s_warm_server", _WARM), ("first_step_s_warm", _OWN))
"""The first run starts the server that the second one uses, and fills the caches of the third, which has its own."""
START_SERVER = Starts(
    Setup(
        "start-1-plus-1",
        "dual-gpu-hot-swap",
        "1.5b",
        2,
        "From the click to the first step: a vLLM server on one GPU, the trainer on another, a LoRA of a 1.5B shape. "
        "With nothing compiled before; on the warm server that this run left; and with a server of its own again.",
        profile={"server_max_model_len": 1024, **_batch(16, 1, 8, 512)},
        limit_s=200,
    ),
    _OF_A_SERVER,
)
START_COLOCATE = Starts(
    Setup(
        "start-colocate",
        "one-gpu-colocate",
        "1.5b",
        1,
        "Time from the click to the first step, with vLLM inside the trainer: with nothing compiled before, and again.",
        profile={"colocate_memory_utilization": 0.3, "colocate_max_model_len": 1024, **_batch(16, 1, 8, 512)},
        limit_s=200,
    ),
    (("first_step_s_cold", {}), ("first_step_s_warm", {})),
)
START_CPU = Starts(
    Setup(
        "cpu-start",
        "dual-gpu-hot-swap",
        "tiny",
        0,
        "A rehearsal without a GPU: a stand-in for vLLM as the server.",
        profile={**_TINY, "server_gpus": 0, "server_max_model_len": None},
    ),
    _OF_A_SERVER,
)
STARTS: tuple[Unit, ...] = (START_SERVER, START_COLOCATE)
_ROADS = {
    "server_max_model_len": 512,
    "use_lora": True,
    "lora_r": 32,
    "lora_alpha": 64,
    **_batch(32, 8, 8, 256),
}
SWAPPED = Setup(
    "lora-swapped-7b",
    "dual-gpu",
    "7b",
    2,
    "A LoRA adapter (r 32) of a 7B model, swapped over HTTP; a vLLM server on one GPU, the trainer on another.",
    profile={**_ROADS, "server_weight_sync": "lora"},
    steps=4,
)
MERGED = Setup(
    "lora-merged-7b",
    "dual-gpu",
    "7b",
    2,
    "The same adapter merged into the weights at each update, and all weights streamed by NCCL.",
    profile={**_ROADS, "server_weight_sync": "nccl"},
    steps=4,
)
TURNS = Turns(
    Setup(
        "turns-colocate",
        "one-gpu-colocate",
        "0.5b",
        1,
        "The product and a bare TRL script in turns on one GPU: vLLM inside the trainer, all weights of a 0.5B model.",
        profile={"colocate_memory_utilization": 0.15, "colocate_max_model_len": 512, **_batch(16, 1, 8, 128)},
    )
)
TURNS_SERVER = Turns(
    Setup(
        "turns-server",
        "dual-gpu",
        "0.5b",
        2,
        "The product and a bare TRL script in turns on two GPUs: a vLLM server, the trainer, all weights of a 0.5B "
        "shape by NCCL.",
        profile={"server_gpu_memory_utilization": 0.35, "server_max_model_len": 512, **_batch(16, 1, 8, 128)},
    )
)
TURNS_CPU = Turns(
    Setup("cpu-turns", "cpu", "tiny", 0, "A rehearsal without a GPU.", profile=_TINY), rounds=2, turn_s=12, limit_s=240
)
GAIN = Gain(
    Setup(
        "batch-gain",
        "one-gpu-colocate",
        "1.5b",
        1,
        "The guide's batch compared with “Use the memory”: vLLM inside the trainer, a LoRA adapter of a 1.5B model.",
        profile={
            "use_lora": True,
            "colocate_memory_utilization": 0.3,
            "colocate_max_model_len": 1024,
            **_batch(4, 8, 8, 256),
        },
    )
)

ONE_GPU: tuple[Unit, ...] = (COLOCATE, SHARED, FOUR_BIT, FOUR_BIT_COLOCATE, Ratio(COLOCATE))
FOUR_GPUS: tuple[Unit, ...] = (
    SERVER,
    EIGHT_GB,
    TP2,
    ZERO3,
    TWO_SERVERS,
)
TWO_GPUS: tuple[Unit, ...] = (*SIXTEEN_GB, EIGHT_GB_COLOCATE, Ratio(SERVER, steps=40))
REHEARSAL: tuple[Unit, ...] = (CPU, CPU_SERVER, Ratio(CPU, pairs=1, steps=4), AHEAD_ON_CPU, THREE_ON_CPU)
EIGHT_GPUS: tuple[Unit, ...] = (ZERO3, TP2, TWO_SERVERS, SERVER, EIGHT_GB)
"""As FOUR_GPUS, two set-ups of four GPUs side by side."""
PLANS: dict[str, tuple[Unit, ...]] = {
    "one-gpu": ONE_GPU,
    "two-gpus": TWO_GPUS,
    "four-gpus": FOUR_GPUS,
    "eight-gpus": EIGHT_GPUS,
    "ahead": (AHEAD,),
    "three-ways": (THREE_WAYS,),
    "cpu-rehearsal": REHEARSAL,
    "starts": STARTS,
    "cpu-starts": (START_CPU,),
    "step-ratio": (TURNS,),
    "step-ratio-server": (TURNS_SERVER,),
    "cpu-step-ratio": (TURNS_CPU,),
    "batch-gain": (GAIN,),
    "lora-roads": (SWAPPED, MERGED),
}
EVERYTHING = {unit.name: unit for plan in PLANS.values() for unit in plan}


def chosen(plan: str, only: str) -> list[Unit]:
    """The units of a plan, or those that `only` names of any plan."""
    if not only:
        return list(PLANS[plan])
    names = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in names if name not in EVERYTHING]
    if unknown:
        raise SystemExit(f"there is no set-up {unknown[0]}; there are {', '.join(EVERYTHING)}")
    return [EVERYTHING[name] for name in names]
