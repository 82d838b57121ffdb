"""The built-in hardware profiles, each with the numbers of the setup that it reproduces.

Where today's versions (TRL 1.16, vLLM 0.22 to 0.31) reject the original, the profile is corrected and a comment
says how. Batches are divided into as few passes as the named cards have room for, which trains the same. A migration
inserts them once.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from controlplane.catalogue.hardware.profiles import DIVISION, Profile
from workers.contract.run.hardware import (
    HardwareSpec,
    Offload,
    Optimizer,
    Precision,
    Quantization,
    Rollout,
    ServerSpec,
    Strategy,
    WeightSync,
)
from workers.contract.run.spec import LoraSpec

LORA = WeightSync.LORA
QUIET = {"TOKENIZERS_PARALLELISM": "false"}
SEGMENTS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", **QUIET}
SPAWN = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
SMALL_CARD = HardwareSpec("", trainer_gpus=1, quantization=Quantization.NF4, gradient_checkpointing=True)
"""A 4-bit model on one small card, without vLLM."""
TWO_RANKS: dict[str, Any] = {
    "trainer_gpus": 2,
    "processes": 2,
    "strategy": Strategy.DDP,
    "precision": Precision.BF16,
}


@dataclass(frozen=True, kw_only=True)
class Shipped(Profile):
    """A built-in profile. Its `spec` gets its name."""

    slug: str
    """An id that stays the same when the name changes."""
    setup: str
    """The reproduced setup and its hardware."""
    card_gib: float = 0.0
    """Memory of each GPU of that hardware; 0: it names none."""
    measured: bool = True
    """Runs with it were measured on GPUs (tests/gpu)."""
    model: str = ""
    """The model for which the memory estimate divided the batch on such cards: the setup's, or the largest usual one
    that fits; "": the batch is the setup's own."""
    guide: dict[str, int] = field(default_factory=dict)
    """The setup's own division of the same batch, if it differs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", replace(self.spec, profile=self.name))


def by_slug(slug: str) -> Shipped:
    return next(profile for profile in SHIPPED if profile.slug == slug)


def _batch(per_device: int, accumulation: int, generations: int, **settings: int) -> dict[str, int]:
    return {**_sizes(per_device, accumulation), "num_generations": generations, **settings}


def _sizes(per_device: int, accumulation: int) -> dict[str, int]:
    return dict(zip(DIVISION, (per_device, accumulation), strict=True))


def _divided(model: str, guide: tuple[int, int], per_device: int, generations: int, **settings: int) -> dict[str, Any]:
    """Divide the guide's batch into as few passes as such a card has room for with this model."""
    passes = guide[0] * guide[1] // per_device
    return {"model": model, "guide": _sizes(*guide), "batch": _batch(per_device, passes, generations, **settings)}


def _guide(share: float, optimizer: Optimizer) -> HardwareSpec:
    """Describe a vLLM server and the trainer on one large GPU."""
    server = ServerSpec(
        shared=True, gpu_memory_utilization=share, max_model_len=4096, dtype="bfloat16", weight_sync=LORA
    )
    return _served(trainer_gpus=1, optimizer=optimizer, server=server)


_served = partial(HardwareSpec, "", Rollout.SERVER)


SHIPPED: tuple[Shipped, ...] = (
    Shipped(
        slug="cpu",
        name="CPU",
        setup="No GPU at all",
        description="Everything on one CPU slot: for tiny models, and to try a setup before it takes a GPU.",
        spec=HardwareSpec("", cpu_slots=1, gradient_checkpointing=False),
    ),
    Shipped(
        slug="one-gpu-colocate",
        name="Single GPU, colocated vLLM",
        setup="One GPU of 40 GB shared by vLLM and the training",
        card_gib=40,
        # The original put a server beside the trainer and streamed weights to it, which NCCL refuses on one GPU. No
        # expandable segments: vLLM can't sleep with them.
        description=(
            "The simplest start on one GPU: vLLM runs inside the trainer and sleeps while the weights are updated. "
            "Trains all weights; prompt and completion share 512 tokens."
        ),
        spec=HardwareSpec(
            "",
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
        # The original streamed weights: NCCL refuses two ranks on one GPU.
        description=(
            "A LoRA on one GPU, with a vLLM server that stays awake beside the trainer. The adapter goes to the "
            "server over HTTP, under a new name for each version."
        ),
        spec=_served(
            trainer_gpus=1,
            server=ServerSpec(shared=True, gpu_memory_utilization=0.6, max_model_len=512, weight_sync=LORA),
            environment=SEGMENTS,
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
        spec=_served(
            trainer_gpus=1,
            server=ServerSpec(gpu_memory_utilization=0.8, max_model_len=512),
            environment=SEGMENTS,
        ),
        batch=_batch(4, 8, 4, max_completion_length=256),
    ),
    Shipped(
        slug="dual-gpu-hot-swap",
        name="Dual GPU, LoRA hot-swap",
        setup="The same two GPUs, with a LoRA",
        card_gib=24,
        measured=False,
        description=(
            "A LoRA on two GPUs: a vLLM server on one, the training on the other. Only the adapter travels to the "
            "server, so larger models fit than with all weights."
        ),
        spec=_served(
            trainer_gpus=1,
            server=ServerSpec(gpu_memory_utilization=0.8, max_model_len=512, weight_sync=LORA),
            environment=SEGMENTS,
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
            "All weights on three GPUs: a vLLM server on one, two that share the batch (DDP), each with a whole copy "
            "and all gradients."
        ),
        spec=_served(
            **TWO_RANKS,
            server=ServerSpec(gpu_memory_utilization=0.8, max_model_len=1024),
            environment=SEGMENTS,
        ),
        **_divided("Qwen2.5 0.5B", (8, 4), 32, 8, max_completion_length=512),
    ),
    Shipped(
        slug="four-gpus-tp2",
        name="Four GPUs, TP=2 server + 2 trainers",
        setup="Four GPUs of 24 GB: two for one vLLM server, two for the training",
        card_gib=24,
        # No expandable segments: they end a tensor-parallel server while it captures its CUDA graphs.
        description=(
            "For models that need two GPUs to generate: one vLLM server over two (tensor parallel), the training of "
            "all weights on two more (DDP). To use more GPUs, raise the number of trainer GPUs and of processes."
        ),
        spec=_served(
            **TWO_RANKS,
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
        # TRL streams weights to one server only, hence the LoRA. The servers get free ports of the host instead of
        # 8000 and 8001.
        description=(
            "A LoRA where generating takes longest: two vLLM servers share out each step's prompts, two GPUs train "
            "(DDP). Both servers get the same adapter before either generates."
        ),
        spec=_served(
            **TWO_RANKS,
            server=ServerSpec(count=2, gpu_memory_utilization=0.8, max_model_len=1024, weight_sync=LORA),
            environment=SEGMENTS,
        ),
        lora=LoraSpec(),
        **_divided("Qwen2.5 3B", (8, 4), 32, 8, max_completion_length=512),
    ),
    Shipped(
        slug="consumer-8gb",
        name="8 GB consumer cards, ZeRO-2 + CPU offload",
        setup="Two RTX 3070 of 8 GB, with 32 GB of memory for the offloaded optimizer",
        card_gib=8,
        # The original's fp16 is now auto, which is bf16. Its groups of 8 and 256 tokens were TRL's defaults then.
        description=(
            "A LoRA of a 1.5B model on two small cards: ZeRO-2 with the optimizer in the host's memory, completions "
            "by the trainer itself. On cards older than the RTX 30 series, set the precision to fp16."
        ),
        spec=HardwareSpec(
            "",
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
        # bitsandbytes instead of the original's Unsloth, which can't be installed beside TRL 1.16. One generation per
        # prompt became 2: GRPO compares.
        description=(
            "A dense 20B model in the least memory: QLoRA of rank 4, sequences of 512 tokens, half of them the "
            "completion's. Completions by the trainer itself, as a second copy in vLLM would not fit."
        ),
        spec=SMALL_CARD,
        lora=LoraSpec(r=4, alpha=8),
        batch=_batch(1, 32, 2, max_completion_length=256),
    ),
    Shipped(
        slug="16gb-standard",
        name="16 GB standard, 4-bit",
        setup="One RTX 4080 Super of 16 GB, a 20B model, balanced",
        card_gib=16,
        # bitsandbytes instead of the original's Unsloth.
        description=(
            "A dense 20B model, balanced: QLoRA of rank 8, sequences of 1,024 tokens, half of them the completion's. "
            "Completions by the trainer itself."
        ),
        spec=SMALL_CARD,
        lora=LoraSpec(r=8, alpha=16),
        batch=_batch(1, 16, 2, max_completion_length=512),
    ),
    Shipped(
        slug="16gb-aggressive",
        name="16 GB aggressive, 4-bit",
        setup="One RTX 4080 Super of 16 GB, a 20B model, most quality",
        card_gib=16,
        # bitsandbytes instead of the original's Unsloth.
        description=(
            "A dense 20B model with the most quality: QLoRA of rank 16, groups of 4, sequences of 2,048 tokens, half "
            "of them the completion's. Completions by the trainer itself."
        ),
        spec=SMALL_CARD,
        lora=LoraSpec(r=16, alpha=32),
        batch=_batch(1, 8, 4, max_completion_length=1024),
    ),
    Shipped(
        slug="guide-8b",
        name="Single node guide, 8B on 80 GB",
        setup="One GPU of 80 GB, an 8B model, vLLM's share 0.5",
        card_gib=80,
        measured=False,
        # The original kept one copy of the weights for both by CUDA IPC, which TRL can't.
        description=(
            "A LoRA of an 8B model on one large GPU: a vLLM server and the trainer share it, each with its own copy "
            "of the weights, and the adapter is swapped over HTTP."
        ),
        spec=_guide(0.5, Optimizer.ADAMW),
        lora=LoraSpec(r=16, alpha=32, dropout=0.05),
        **_divided("Llama 3.1 8B", (4, 4), 16, 4),
    ),
    Shipped(
        slug="guide-14b",
        name="Single node guide, 14B on 80 GB",
        setup="One GPU of 80 GB, a 14B model, vLLM's share 0.45, 8-bit AdamW",
        card_gib=80,
        measured=False,
        description="As the 8B guide with a share of 0.45 and 8-bit AdamW. Each has a copy of the weights.",
        spec=_guide(0.45, Optimizer.ADAMW_8BIT),
        lora=LoraSpec(r=16, alpha=32, dropout=0.05),
        **_divided("Qwen2.5 14B", (2, 8), 16, 4),
    ),
    Shipped(
        slug="guide-24b",
        name="Single node guide, 24B on 192 GB",
        setup="One B200 of 192 GB, a 24B model, vLLM's share 0.30, Adafactor",
        card_gib=179,
        measured=False,
        description="As the 8B guide on one GPU of 192 GB, with a share of 0.3 and Adafactor.",
        spec=_guide(0.3, Optimizer.ADAFACTOR),
        lora=LoraSpec(r=16, alpha=32, dropout=0.05),
        **_divided("Mistral Small 24B", (1, 16), 16, 4),
    ),
    Shipped(
        slug="seven-plus-one-zero3",
        name="7 + 1 GPUs, ZeRO-3",
        setup="Eight A100 of 40 GB: seven for the training, the last one for vLLM",
        card_gib=40,
        measured=False,
        # The original ran vLLM inside the first rank and named its GPU by vllm_device, which TRL no longer has; nor
        # has it max_prompt_length.
        description=(
            "All weights of a 3B model on eight GPUs: seven train with ZeRO-3, vLLM generates on the eighth. Prompt "
            "and completion share 8,192 tokens."
        ),
        spec=_served(
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
        # As above: no vllm_device, no max_prompt_length.
        description=(
            "All weights on four GPUs: three train with ZeRO-3, vLLM generates on the fourth. Prompt and completion "
            "share 8,192 tokens."
        ),
        spec=_served(
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
        spec=_served(
            trainer_gpus=1,
            server=ServerSpec(attached=("http://127.0.0.1:8000",)),
            environment=SEGMENTS,
        ),
        batch=_batch(4, 8, 4, max_completion_length=256),
    ),
)
