"""The GPU memory of one trainer process by part, in each phase of a step.

Bytes per weight and per token follow what the libraries keep: TRL 1.16 loads fp32 for full training, autocast copies
each trained weight to bf16 in a forward pass, the output layer is computed in tiles (trl.kernels.chunked_logprob), and
a checkpointed layer is computed again in the backward pass. They are compared with measurements on a GPU
(tests/gpu/memory.json).
"""

from workers.contract.memory.parts import Part, Parts, Peak, Settings
from workers.contract.memory.shapes import Shape, adapter, targets_mlp
from workers.contract.run.hardware import (
    ZERO,
    HardwareSpec,
    Offload,
    Optimizer,
    Precision,
    Quantization,
    Rollout,
    Strategy,
    WeightSync,
)

GIB = 2**30
SHARDS_WEIGHTS = (Strategy.ZERO3, Strategy.FSDP2)
SHARDS_GRADIENTS = (Strategy.ZERO2, *SHARDS_WEIGHTS)

STATE_BYTES = {Optimizer.ADAMW: 8.0, Optimizer.ADAMW_8BIT: 2.03, Optimizer.ADAFACTOR: 0.05}
"""Bytes of optimizer state for each trained weight."""
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes per weight in NF4 with double quantization: half a byte, one byte of scale for each block of 64, and
four bytes for each 256 of these scales."""
TILE_TOKENS, TILE_VOCABULARY = 4096, 32_768
"""Size of the tiles in which TRL computes the output layer."""
SUB_GROUP = 1_000_000_000
"""Number of weights that ZeRO-3 updates at a time."""
LIVE_WEIGHTS = 1_000_000_000
SYNC_BUFFER_GIB = 1.0
"""Size of the two buffers into which vLLM packs weights; each may be up to one tensor larger."""
CONTEXT_GIB = 0.75
GROUP_GIB = 0.8
"""GiB of NCCL's buffers for a group of processes."""
DEEPSPEED_GIB = 0.35
"""GiB of additional NCCL buffers with DeepSpeed, which communicates on several streams."""


def peak(shape: Shape, hardware: HardwareSpec, settings: Settings, *, main: bool = True) -> Peak:
    """Find the phase of a step that takes the most memory. `main` is true for the process that sends the weights to a
    vLLM server."""
    return max(phases(shape, hardware, settings, main=main), key=lambda phase: phase.total)


def phases(shape: Shape, hardware: HardwareSpec, settings: Settings, *, main: bool = True) -> list[Peak]:
    model = _ProcessMemory(shape, hardware, settings, main=main)
    steady = model.steady()
    return [
        Peak(name, model.with_slack(_sum(steady, extra), steady))
        for name, extra in (
            ("while completions are generated", model.generation() if settings.generated else model.sync()),
            ("in the forward pass", model.forward()),
            ("in the backward pass", model.backward_start()),
            ("at the end of the backward pass", model.backward_end()),
            ("in the optimizer step", model.step()),
        )
    ]


def steady(shape: Shape, hardware: HardwareSpec, settings: Settings) -> Parts:
    """Estimate the memory of a trainer process between two steps, when a colocated vLLM generates."""
    return _ProcessMemory(shape, hardware, settings, main=True).steady()


class _ProcessMemory:
    """The memory of one trainer process: public methods return GiB by part, private ones bytes."""

    def __init__(self, shape: Shape, hardware: HardwareSpec, settings: Settings, *, main: bool) -> None:
        self.shape, self.hardware, self.settings, self.main = shape, hardware, settings, main
        self.lora = settings.lora is not None
        self.zero = hardware.strategy in ZERO
        self.processes = max(hardware.processes, 1)
        self.half_precision = settings.precision != Precision.FP32
        self.quantized = hardware.quantization != Quantization.NONE
        self.fp32_weights = not self.half_precision or not self._loads_16_bits()
        """True if the weights are fp32, so that a 16-bit run casts them where they are used."""
        self.trained = adapter(shape, settings.lora) if settings.lora else shape.total
        self.tokens = settings.batch * settings.length
        self.offloaded = hardware.offload != Offload.NONE
        self.sharded = hardware.strategy in SHARDS_WEIGHTS

    def _loads_16_bits(self) -> bool:
        if self.hardware.strategy is Strategy.FSDP2:
            return False
        if self.quantized or self.zero:
            return True
        return self.lora and self.hardware.trainer_gpus > 0 and not merges(self.hardware)

    # --- what is always there -------------------------------------------------------------------------------------

    def steady(self) -> Parts:
        shape, processes = self.shape, self.processes
        weight = 4 if self.fp32_weights else 2
        weights = self._quantized_weights() if self.quantized else weight * shape.total
        parts: dict[Part, float] = {Part.WEIGHTS: weights, Part.CONTEXT: self._context()}
        if self.sharded:
            parts[Part.WEIGHTS] = 0 if self.hardware.offload is Offload.PARAMETERS else weights / processes
        if self.settings.reference and not self.lora:
            parts[Part.REFERENCE] = parts[Part.WEIGHTS]
        if self.lora:
            parts[Part.ADAPTER] = self._adapter_bytes()
        elif not self.offloaded:
            parts[Part.OPTIMIZER] = self._optimizer_bytes()
            if self.hardware.strategy is Strategy.ZERO3:
                parts[Part.GRADIENTS] = 2 * shape.total / processes
        if self.hardware.strategy is Strategy.DDP:
            parts[Part.COMMUNICATION] = 4 * self.trained  # the buckets hold all gradients once more
        if self.zero and self.hardware.strategy is not Strategy.ZERO3 and self.offloaded and not self.lora:
            parts[Part.COMMUNICATION] = 0.5 * GIB
        return _gib(parts)

    def _quantized_weights(self) -> float:
        shape = self.shape
        weight = NF4_BYTES if self.hardware.quantization is Quantization.NF4 else 1 + 4 / max(shape.hidden, 1)
        return weight * shape.linear + 2 * (shape.embedding + shape.head + shape.experts + shape.small)

    def _context(self) -> float:
        group = self.processes > 1 or self.zero
        sends = self.main and sends_weights(self.hardware)
        streams = DEEPSPEED_GIB if self.zero and self.processes > 1 else 0
        return (CONTEXT_GIB + GROUP_GIB * (group + sends) + streams) * GIB

    def _adapter_weight_bytes(self) -> int:
        """Return the bytes of a LoRA weight: TRL keeps 16 bits on quantized weights and with ZeRO-3, otherwise peft
        uses fp32."""
        return 2 if self.quantized or self.hardware.strategy is Strategy.ZERO3 else 4

    def _adapter_bytes(self) -> float:
        share = self.processes if self.zero else 1
        return self.trained * (2 * self._adapter_weight_bytes() + 2 * self._adapter_weight_bytes() / share)

    def _optimizer_bytes(self) -> float:
        shape, n = self.shape, self.processes
        if self.zero:
            return 12 * shape.total / n  # fp32 weights and both moments, whatever the optimizer
        state = STATE_BYTES[self.settings.optimizer]
        # transformers keeps the embedding's moments in 32 bits.
        extra = (8 - state) * shape.embedding if self.settings.optimizer is Optimizer.ADAMW_8BIT else 0
        total = state * shape.total + extra
        return total / n if self.sharded else total

    # --- what a phase adds ----------------------------------------------------------------------------------------

    def generation(self) -> Parts:
        count = self.settings.generated
        return _gib(
            {
                Part.GENERATION: 1.5 * count * self.settings.length * self.shape.kv_bytes(),  # grows by copying
                Part.LOGITS: 3 * 4 * count * self.shape.vocab,
                Part.COPIES: self._copies(),
                Part.COMMUNICATION: 2 * self.shape.total if self.sharded else 0,  # all weights gathered
            }
        )

    def sync(self) -> Parts:
        if not (self.main and sends_weights(self.hardware)):
            return {}
        largest = (4 if self.fp32_weights else 2) * self.shape.embedding / GIB
        return {Part.COMMUNICATION: 2 * SYNC_BUFFER_GIB + largest}

    def forward(self) -> Parts:
        return _gib(
            {
                Part.GRADIENTS: self._gradients() if self.settings.passes > 1 else 0,
                Part.ACTIVATIONS: self._kept_activations(),
                Part.COPIES: self._copies(),
                Part.LOGITS: self._tile(),
                Part.COMMUNICATION: self._gathered(),
            }
        )

    def backward_start(self) -> Parts:
        """Return what the backward pass of the output layer and the last layer adds, while all checkpoints are in
        memory."""
        head_trained = not self.lora and not self.zero
        return _gib(
            {
                Part.GRADIENTS: self._gradients() if self.settings.passes > 1 else 0,
                Part.ACTIVATIONS: self._kept_activations() + self._layer(),
                Part.COPIES: 0 if self.settings.checkpointing else self._copies(),
                Part.LOGITS: self._tile() * 0.5
                + 4 * self.tokens * self.shape.hidden
                + (4 * self.shape.embedding if head_trained else 0),
                Part.COMMUNICATION: self._gathered(),
            }
        )

    def backward_end(self) -> Parts:
        """Return what the backward pass of the first layer and the embedding adds, with all gradients in memory."""
        tied = not self.shape.head and not self.lora
        layer = self._layer() if self.settings.checkpointing else 0.2 * self._layer()
        return _gib(
            {
                Part.GRADIENTS: self._gradients(),
                Part.ACTIVATIONS: max(layer, (2 if self.zero else 4) * self.shape.embedding if tied else 0)
                + self._int8_leftovers(),
                Part.COMMUNICATION: self._gathered(),
            }
        )

    def step(self) -> Parts:
        shape, n = self.shape, self.processes
        parts: dict[Part, float] = {Part.GRADIENTS: self._gradients()}
        if self.lora:
            return _gib(parts)
        if self.hardware.strategy is Strategy.ZERO3 and not self.offloaded:
            group = min(SUB_GROUP, shape.total / n)
            parts[Part.OPTIMIZER] = 8 * group
            parts[Part.ALLOCATOR] = 8 * (shape.total / n - group) + 2 * shape.total / n
            parts[Part.GRADIENTS] = 0
        elif self.zero and not self.offloaded:
            # Gradients and the update in fp32 for the process's own share; the gathered weights find no free block.
            parts[Part.OPTIMIZER] = 8 * shape.total / n
            parts[Part.ALLOCATOR] = 2 * shape.total + 2 * shape.total / n
        elif self.zero:
            parts[Part.COMMUNICATION] = 0 if self.hardware.strategy is Strategy.ZERO3 else 2 * shape.total
        elif self.settings.optimizer is Optimizer.ADAFACTOR:
            parts[Part.OPTIMIZER] = 12 * shape.largest
        return _gib(parts)

    # --- their terms, in bytes ------------------------------------------------------------------------------------

    def _gradients(self) -> float:
        if self.lora:
            return 0  # counted with the adapter
        weight = 2 if self.zero else 4
        if self.hardware.strategy is Strategy.ZERO3:
            return 0  # a buffer that is always there; offloaded: in the host's memory
        share = self.processes if self.hardware.strategy in SHARDS_GRADIENTS else 1
        return weight * self.trained / share

    def _copies(self) -> float:
        """Count the bytes of the 16-bit copies of trained fp32 weights that autocast keeps until the forward pass
        ends."""
        casts = self.fp32_weights and self.half_precision and not self.lora and not self.sharded
        return 2 * self.shape.linear if casts else 0

    def _kept_activations(self) -> float:
        shape = self.shape
        leftovers = self._int8_leftovers()
        if self.settings.checkpointing:
            return leftovers + self.tokens * shape.hidden * (4 if self.fp32_weights else 2) * (shape.layers + 2)
        return leftovers + self.tokens * shape.layers * self._layer_activations()

    def _int8_leftovers(self) -> float:
        """Count the bytes that bitsandbytes' 8-bit layers keep until the next pass: their inputs and a second form of
        their weights."""
        if self.hardware.quantization is not Quantization.INT8:
            return 0
        shape = self.shape
        inputs = 3 * shape.hidden + shape.query + 2 * shape.hidden + shape.inner
        return shape.linear + self.tokens * shape.layers * inputs

    def _layer_activations(self) -> float:
        """Count the bytes per token that one layer keeps for its backward pass."""
        shape = self.shape
        hidden, query, key, inner = shape.hidden, shape.query, shape.key, shape.inner
        attention = 6 * query + 4 * key + (4 * shape.heads * self.settings.length if shape.eager_attention else 0)
        experts = 4 * shape.active_experts * hidden
        if not self.lora:
            return (26 if self.fp32_weights else 16) * hidden + attention + 8 * inner + experts
        mlp = bool(self.settings.lora and targets_mlp(shape, self.settings.lora))
        casts = self._adapter_weight_bytes() == 4  # each target casts its own input
        per_hidden = (18 if mlp else 14) if casts else 8
        return per_hidden * hidden + attention + (8 if mlp else 6) * inner + experts

    def _layer(self) -> float:
        """Count the bytes of one layer's backward pass, including what it recomputes."""
        shape = self.shape
        mlp = bool(self.settings.lora and targets_mlp(shape, self.settings.lora))
        extra = 5.3 if not mlp else 6.8 if self._adapter_weight_bytes() == 4 else 2.3
        recomputed = self._layer_activations() if self.settings.checkpointing else 0
        unpacked = 2 * shape.largest_linear if self.quantized else 0
        share = 1.0 if self.settings.checkpointing else 0.3
        return (
            self.tokens * (recomputed + share * extra * shape.inner + 2 * shape.active_experts * shape.hidden)
            + unpacked
        )

    def _tile(self) -> float:
        tokens = min(self.settings.batch * self.settings.completion_tokens, TILE_TOKENS)
        width = min(self.shape.vocab, TILE_VOCABULARY)
        cast = 2 * width * self.shape.hidden if self.fp32_weights else 0
        return 2 * tokens * width + cast

    def _gathered(self) -> float:
        """Count the bytes of gathered weights: other processes' shards, held for one layer or more."""
        shape = self.shape
        if self.hardware.strategy is Strategy.ZERO3:
            live = min(LIVE_WEIGHTS, shape.total)
            return 2 * (live if self.hardware.offload is Offload.PARAMETERS else live * (1 - 1 / self.processes) * 0.5)
        if self.hardware.strategy is Strategy.FSDP2:
            layer = (shape.linear + shape.experts) / max(shape.layers, 1)
            return 2 * 2 * layer + 2 * shape.embedding
        return 0

    def with_slack(self, parts: Parts, steady: Parts) -> Parts:
        """Return the parts with the freed blocks that the allocator keeps because they don't fit what comes next."""
        transient = sum(parts.values()) - sum(steady.values())
        is_expandable = "expandable_segments:True" in str(self.hardware.environment.get("PYTORCH_CUDA_ALLOC_CONF", ""))
        slack = 0.03 * transient if is_expandable else min(0.15 * transient, 2.0) + 0.1
        if self.hardware.offload is Offload.PARAMETERS:
            slack = transient
        if self.settings.generated and not is_expandable:
            slack += self._copies() / GIB  # the casts of each generated token leave gaps that gradients don't fit
        return _sum(parts, {Part.ALLOCATOR: slack})


def optimizer_bytes(hardware: HardwareSpec, settings: Settings) -> float:
    """Return the bytes of optimizer state, including ZeRO's fp32 weights, per trained weight in a checkpoint."""
    if hardware.strategy in ZERO:
        return 12.0  # fp32 weights and both moments
    if settings.lora and hardware.quantization is not Quantization.NONE:
        return 4.0  # both moments in the adapter's 16 bits
    return STATE_BYTES[settings.optimizer]


def merges(hardware: HardwareSpec) -> bool:
    if hardware.vllm_server:
        return hardware.vllm_server.weight_sync is WeightSync.NCCL
    return hardware.rollout is Rollout.COLOCATE


def sends_weights(hardware: HardwareSpec) -> bool:
    return bool(hardware.vllm_server and hardware.vllm_server.weight_sync is WeightSync.NCCL)


def _gib(parts: dict[Part, float]) -> Parts:
    return {part: value / GIB for part, value in parts.items() if value}


def _sum(*summands: Parts) -> Parts:
    total: Parts = {}
    for parts in summands:
        for part, value in parts.items():
            total[part] = total.get(part, 0.0) + value
    return {part: total[part] for part in Part if total.get(part)}
