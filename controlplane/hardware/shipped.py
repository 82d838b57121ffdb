"""The built-in hardware profiles, each with the numbers of the setup that it reproduces.

Where today's versions (TRL 1.16, vLLM 0.22 to 0.31) reject the original, the profile is corrected and its description
says how. Batches are divided into as few passes as the named cards have room for, which trains the same. A migration
inserts them once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from controlplane.hardware.profiles import Profile
from workers.contract import (
    HardwareSpec,
    LoraSpec,
    Offload,
    Optimizer,
    Precision,
    Quantization,
    Rollout,
    ServerSpec,
    Strategy,
    WeightSync,
)

LORA = WeightSync.LORA
SEGMENTS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
QUIET = {"TOKENIZERS_PARALLELISM": "false"}
SPAWN = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}


@dataclass(frozen=True, kw_only=True)
class Shipped(Profile):
    slug: str
    """Stays the same when the name changes."""
    setup: str
    """The setup that it reproduces, and its hardware."""
    card_gib: float = 0.0
    """Memory of each GPU of that hardware; 0: it names none."""
    measured: bool = True
    """Runs with it were measured on GPUs (tests/gpu)."""
    model: str = ""
    """For which its batch was divided by the memory model on such cards: the setup's, or the largest usual one that
    they hold; "": the batch is the setup's own."""
    guide: dict[str, int] = field(default_factory=dict)
    """The setup's own division of the same batch, where it is another."""


def by_slug(slug: str) -> Shipped:
    return next(profile for profile in SHIPPED if profile.slug == slug)


def _batch(per_device: int, accumulation: int, generations: int, **more: int) -> dict[str, int]:
    sizes = {"per_device_train_batch_size": per_device, "gradient_accumulation_steps": accumulation}
    return {**sizes, "num_generations": generations, **more}


def _divided(model: str, guide: tuple[int, int], per_device: int, generations: int, **more: int) -> dict[str, Any]:
    """The guide's batch, divided into fewer passes: all that such a card has room for with this model."""
    sizes = {"per_device_train_batch_size": guide[0], "gradient_accumulation_steps": guide[1]}
    passes = guide[0] * guide[1] // per_device
    return {"model": model, "guide": sizes, "batch": _batch(per_device, passes, generations, **more)}


def _one_card(name: str) -> HardwareSpec:
    """A 4-bit model on one small card, without vLLM."""
    return HardwareSpec(name, trainer_gpus=1, quantization=Quantization.NF4, gradient_checkpointing=True)


def _guide(name: str, share: float, optimizer: Optimizer) -> HardwareSpec:
    """A vLLM server beside the trainer on one large GPU."""
    server = ServerSpec(
        shared=True, gpu_memory_utilization=share, max_model_len=4096, dtype="bfloat16", weight_sync=LORA
    )
    return HardwareSpec(name, Rollout.SERVER, trainer_gpus=1, optimizer=optimizer, server=server)


SHIPPED: tuple[Shipped, ...] = (
    Shipped(
        slug="cpu",
        name="CPU",
        setup="No GPU at all",
        description="Everything on one CPU slot: for tiny models, and to try a setup before it takes a GPU.",
        spec=HardwareSpec("CPU", cpu_slots=1, gradient_checkpointing=False),
    ),
    Shipped(
        slug="one-gpu-colocate",
        name="Single GPU, colocated vLLM",
        setup="One GPU of 40 GB shared by vLLM and the training",
        card_gib=40,
        description=(
            "One GPU for both: vLLM runs inside the trainer with a share of 0.6 and sleeps while the weights are "
            "updated. The original put a server beside the trainer and streamed weights to it, which NCCL refuses on "
            "one GPU. Its expandable segments are left out: vLLM can't sleep with them."
        ),
        spec=HardwareSpec(
            "Single GPU, colocated vLLM",
            Rollout.COLOCATE,
            trainer_gpus=1,
            colocate_memory_utilization=0.6,
            colocate_sleep=True,
            colocate_max_model_len=512,
            environment=QUIET,
        ),
        **_divided("Qwen2.5 0.5B", (2, 16), 32, 2, max_completion_length=256),
    ),
    Shipped(
        slug="one-gpu-shared-server",
        name="Single GPU, server beside the trainer",
        setup="One GPU of 40 GB shared by a vLLM server and the training",
        card_gib=40,
        description=(
            "A vLLM server with a share of 0.6 and the trainer on the same GPU. NCCL refuses two ranks on one GPU, so "
            "a LoRA is trained and its adapter goes to the server over HTTP, under a new name for each version."
        ),
        spec=HardwareSpec(
            "Single GPU, server beside the trainer",
            Rollout.SERVER,
            trainer_gpus=1,
            server=ServerSpec(shared=True, gpu_memory_utilization=0.6, max_model_len=512, weight_sync=LORA),
            environment={**SEGMENTS, **QUIET},
        ),
        lora=LoraSpec(),
        **_divided("Qwen2.5 3B", (2, 16), 32, 2, max_completion_length=256),
    ),
    Shipped(
        slug="dual-gpu",
        name="Dual GPU, 1 server + 1 trainer",
        setup="Two GPUs of 24 GB: one for vLLM, one for the training",
        card_gib=24,
        description=(
            "A vLLM server on one GPU, the training of all weights on another. Any two free GPUs do, and vLLM's server "
            "is started and ended with the run."
        ),
        spec=HardwareSpec(
            "Dual GPU, 1 server + 1 trainer",
            Rollout.SERVER,
            trainer_gpus=1,
            server=ServerSpec(gpu_memory_utilization=0.8, max_model_len=512),
            environment={**SEGMENTS, **QUIET},
        ),
        batch=_batch(4, 8, 4, max_completion_length=256),
    ),
    Shipped(
        slug="dual-gpu-hot-swap",
        name="Dual GPU, LoRA hot-swap",
        setup="The same two GPUs, with a LoRA",
        card_gib=24,
        measured=False,
        description=("The same two GPUs; only the LoRA adapter travels to the server, under a new name each time."),
        spec=HardwareSpec(
            "Dual GPU, LoRA hot-swap",
            Rollout.SERVER,
            trainer_gpus=1,
            server=ServerSpec(gpu_memory_utilization=0.8, max_model_len=512, weight_sync=LORA),
            environment={**SEGMENTS, **QUIET},
        ),
        lora=LoraSpec(),
        **_divided("Qwen2.5 3B", (4, 8), 32, 4, max_completion_length=256),
    ),
    Shipped(
        slug="three-gpus",
        name="Three GPUs, 1 server + 2 trainers",
        setup="Three GPUs of 24 GB: one for vLLM, two for the training",
        card_gib=24,
        measured=False,
        description=(
            "A vLLM server on one GPU, the training of all weights on two more. With DDP each of them holds a whole "
            "copy and all gradients once more."
        ),
        spec=HardwareSpec(
            "Three GPUs, 1 server + 2 trainers",
            Rollout.SERVER,
            trainer_gpus=2,
            processes=2,
            strategy=Strategy.DDP,
            precision=Precision.BF16,
            server=ServerSpec(gpu_memory_utilization=0.8, max_model_len=1024),
            environment={**SEGMENTS, **QUIET},
        ),
        **_divided("Qwen2.5 0.5B", (8, 4), 32, 8, max_completion_length=512),
    ),
    Shipped(
        slug="four-gpus-tp2",
        name="Four GPUs, TP=2 server + 2 trainers",
        setup="Four GPUs of 24 GB: two for one vLLM server, two for the training",
        card_gib=24,
        description=(
            "One vLLM server over two GPUs (tensor parallel), the training of all weights on two more (DDP). To use "
            "more GPUs, raise the number of trainer GPUs and of processes. Expandable segments are left out: they end "
            "a tensor-parallel server while it captures its CUDA graphs."
        ),
        spec=HardwareSpec(
            "Four GPUs, TP=2 server + 2 trainers",
            Rollout.SERVER,
            trainer_gpus=2,
            processes=2,
            strategy=Strategy.DDP,
            precision=Precision.BF16,
            server=ServerSpec(gpus=2, tensor_parallel=2, gpu_memory_utilization=0.8, max_model_len=1024),
            environment=QUIET,
        ),
        **_divided("Qwen2.5 0.5B", (8, 4), 32, 8, max_completion_length=512),
    ),
    Shipped(
        slug="two-servers-load-balanced",
        name="Four GPUs, 2 load-balanced servers + 2 trainers",
        setup="Four GPUs of 24 GB: two vLLM servers of one each, two for the training",
        card_gib=24,
        description=(
            "Two vLLM servers share out each step's prompts, two GPUs train (DDP). TRL streams weights to one server "
            "only, so a LoRA is trained, and both servers get the same version of it over HTTP before either "
            "generates. The servers get free ports of the host instead of 8000 and 8001."
        ),
        spec=HardwareSpec(
            "Four GPUs, 2 load-balanced servers + 2 trainers",
            Rollout.SERVER,
            trainer_gpus=2,
            processes=2,
            strategy=Strategy.DDP,
            precision=Precision.BF16,
            server=ServerSpec(count=2, gpu_memory_utilization=0.8, max_model_len=1024, weight_sync=LORA),
            environment={**SEGMENTS, **QUIET},
        ),
        lora=LoraSpec(),
        **_divided("Qwen2.5 3B", (8, 4), 32, 8, max_completion_length=512),
    ),
    Shipped(
        slug="consumer-8gb",
        name="8 GB consumer cards, ZeRO-2 + CPU offload",
        setup="Two RTX 3070 of 8 GB, with 32 GB of memory for the offloaded optimizer",
        card_gib=8,
        description=(
            "A LoRA of a 1.5B model on two cards of 8 GB: ZeRO-2 with the optimizer in the host's memory, completions "
            "by the trainer itself. The original's fp16 is now auto, "
            "which is bf16: set it back to fp16 on cards older than the RTX 30 series. Its groups of 8 and 256 tokens "
            "were TRL's defaults then."
        ),
        spec=HardwareSpec(
            "8 GB consumer cards, ZeRO-2 + CPU offload",
            trainer_gpus=2,
            processes=2,
            strategy=Strategy.ZERO2,
            offload=Offload.OPTIMIZER,
            gradient_checkpointing=True,
        ),
        lora=LoraSpec(r=16, alpha=32, dropout=0.1),
        **_divided("Qwen2.5 1.5B", (4, 8), 16, 8, max_completion_length=256),
    ),
    Shipped(
        slug="16gb-conservative",
        name="16 GB conservative, 4-bit",
        setup="One RTX 4080 Super of 16 GB, a 20B model, least memory",
        card_gib=16,
        description=(
            "QLoRA of a dense 20B model on one card of 16 GB (no mixture of experts), "
            "sequences of 512 tokens. The original's Unsloth can't be "
            "installed beside TRL 1.16: bitsandbytes packs the weights, and completions come from the trainer, as a "
            "second copy in vLLM would not fit. One generation per prompt became 2: GRPO compares. Half of the "
            "sequence is the completion's."
        ),
        spec=_one_card("16 GB conservative, 4-bit"),
        lora=LoraSpec(r=4, alpha=8),
        batch=_batch(1, 32, 2, max_completion_length=256),
    ),
    Shipped(
        slug="16gb-standard",
        name="16 GB standard, 4-bit",
        setup="One RTX 4080 Super of 16 GB, a 20B model, balanced",
        card_gib=16,
        description=(
            "QLoRA of a dense 20B model on one card of 16 GB (no mixture of experts), "
            "sequences of 1,024 tokens, half of them the completion's. "
            "bitsandbytes instead of Unsloth, which can't be installed beside TRL 1.16, and no second copy in vLLM."
        ),
        spec=_one_card("16 GB standard, 4-bit"),
        lora=LoraSpec(r=8, alpha=16),
        batch=_batch(1, 16, 2, max_completion_length=512),
    ),
    Shipped(
        slug="16gb-aggressive",
        name="16 GB aggressive, 4-bit",
        setup="One RTX 4080 Super of 16 GB, a 20B model, most quality",
        card_gib=16,
        description=(
            "QLoRA of a dense 20B model on one card of 16 GB (no mixture of experts), "
            "sequences of 2,048 tokens, half of them the completion's. bitsandbytes instead of Unsloth, which can't be "
            "installed beside TRL 1.16, and no second copy in vLLM."
        ),
        spec=_one_card("16 GB aggressive, 4-bit"),
        lora=LoraSpec(r=16, alpha=32),
        batch=_batch(1, 8, 4, max_completion_length=1024),
    ),
    Shipped(
        slug="guide-8b",
        name="Single node guide, 8B on 80 GB",
        setup="One GPU of 80 GB, an 8B model, vLLM's share 0.5",
        card_gib=80,
        measured=False,
        description=(
            "A server and the trainer of a LoRA on one GPU of 80 GB. The original kept one copy of the weights for "
            "both by CUDA IPC, which TRL can't; here each has its own, and the adapter is swapped over HTTP."
        ),
        spec=_guide("Single node guide, 8B on 80 GB", 0.5, Optimizer.ADAMW),
        lora=LoraSpec(r=16, alpha=32, dropout=0.05),
        **_divided("Llama 3.1 8B", (4, 4), 16, 4),
    ),
    Shipped(
        slug="guide-14b",
        name="Single node guide, 14B on 80 GB",
        setup="One GPU of 80 GB, a 14B model, vLLM's share 0.45, 8-bit AdamW",
        card_gib=80,
        measured=False,
        description=("As the 8B guide with a share of 0.45 and 8-bit AdamW. Each has a copy of the weights."),
        spec=_guide("Single node guide, 14B on 80 GB", 0.45, Optimizer.ADAMW_8BIT),
        lora=LoraSpec(r=16, alpha=32, dropout=0.05),
        **_divided("Qwen2.5 14B", (2, 8), 16, 4),
    ),
    Shipped(
        slug="guide-24b",
        name="Single node guide, 24B on 192 GB",
        setup="One B200 of 192 GB, a 24B model, vLLM's share 0.30, Adafactor",
        card_gib=179,
        measured=False,
        description=("As the 8B guide on one GPU of 192 GB, with a share of 0.3 and Adafactor."),
        spec=_guide("Single node guide, 24B on 192 GB", 0.3, Optimizer.ADAFACTOR),
        lora=LoraSpec(r=16, alpha=32, dropout=0.05),
        **_divided("Mistral Small 24B", (1, 16), 16, 4),
    ),
    Shipped(
        slug="seven-plus-one-zero3",
        name="7 + 1 GPUs, ZeRO-3",
        setup="Eight A100 of 40 GB: seven for the training, the last one for vLLM",
        card_gib=40,
        measured=False,
        description=(
            "All weights of a 3B model over seven GPUs with ZeRO-3, vLLM on the eighth. The original ran vLLM inside "
            "the first rank and named its GPU by vllm_device, which TRL no longer has: it is its own server now. "
            "Prompt and completion share its 8,192 tokens, as max_prompt_length no longer exists."
        ),
        spec=HardwareSpec(
            "7 + 1 GPUs, ZeRO-3",
            Rollout.SERVER,
            trainer_gpus=7,
            processes=7,
            strategy=Strategy.ZERO3,
            server=ServerSpec(gpu_memory_utilization=0.85, max_model_len=8192),
            environment=SPAWN,
        ),
        **_divided("Qwen2.5 3B", (2, 4), 8, 14, num_iterations=2),
    ),
    Shipped(
        slug="three-plus-one-zero3",
        name="3 + 1 GPUs, ZeRO-3",
        setup="Four A10G of 24 GB: three for the training, the last one for vLLM",
        card_gib=24,
        description=(
            "Trains all weights over three GPUs with ZeRO-3, with vLLM on the fourth as its own server: TRL no "
            "longer has vllm_device, which named its GPU, nor max_prompt_length."
        ),
        spec=HardwareSpec(
            "3 + 1 GPUs, ZeRO-3",
            Rollout.SERVER,
            trainer_gpus=3,
            processes=3,
            strategy=Strategy.ZERO3,
            server=ServerSpec(gpu_memory_utilization=0.85, max_model_len=8192),
            environment=SPAWN,
        ),
        **_divided("Qwen2.5 1.5B", (2, 4), 8, 6, num_iterations=2),
    ),
    Shipped(
        slug="attached-server",
        name="Attached vLLM server",
        setup="One GPU for the training; a vLLM server that somebody else runs",
        measured=False,
        description=(
            "Trains against a vLLM server that was started by hand, such as one over several GPUs. Change the address. "
            "It must run the same model, take weights by NCCL (VLLM_SERVER_DEV_MODE=1, --weight-transfer-config with "
            "nccl as its backend) and serve nobody else; nothing about it is started, ended or proved."
        ),
        spec=HardwareSpec(
            "Attached vLLM server",
            Rollout.SERVER,
            trainer_gpus=1,
            server=ServerSpec(attached=("http://127.0.0.1:8000",)),
            environment={**SEGMENTS, **QUIET},
        ),
        batch=_batch(4, 8, 4, max_completion_length=256),
    ),
)
