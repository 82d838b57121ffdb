"""The duration of a step on GPUs, by a rule of thumb.

- generation: the time of one token, times the maximum completion length. vLLM takes 2 ms for a token of all its
  sequences and 0.6 ms more for each billion parameters on a GPU, and twice that with 256 concurrent sequences;
  sequences that don't fit its KV cache wait for others to end. The trainer's own generation takes 30 ms, and 2 ms more
  for each billion. An environment is assumed to take a second per turn, as tools differ.
- training: 0.25 s for each pass, and 8 operations per parameter and token at 230 tera-operations per second on each
  GPU; twice that with quantized weights.

The constants fit the runs recorded in tests/gpu/results.json within a factor of 2, all on H200s; other GPUs differ.
"""

from dataclasses import dataclass
from math import ceil, inf

from workers.contract.run.hardware import HardwareSpec, Quantization, Rollout

VLLM_TOKEN_S, VLLM_TOKEN_S_PER_BILLION = 0.002, 0.0006
DOUBLING_SEQUENCES = 256
"""Number of concurrent sequences that doubles the time of a token in vLLM."""
TRAINER_TOKEN_S, TRAINER_TOKEN_S_PER_BILLION = 0.03, 0.002
PASS_S = 0.25
OPERATIONS = 8
"""Operations per parameter and token: forward, backward, and forward again with gradient checkpointing."""
OPERATIONS_PER_S = 2.3e14
TOOLS_S = 1.0
"""Assumed seconds that tools take per turn, with all episodes in parallel."""
QUANTIZED_FACTOR = 2
"""Factor by which a pass takes longer with quantized weights."""


@dataclass(frozen=True)
class StepWorkload:
    completions: float
    length: int
    """Maximum number of tokens of a prompt with its completion."""
    micro_batch: int
    """Completions of one pass on one GPU."""
    passes: int
    limit: int
    """Maximum number of tokens of a completion."""
    generations: float
    """Generations per step; less than 1 if later steps reuse completions."""
    answers: int = 0
    """Maximum number of the environment's responses in an episode."""

    @property
    def steps_per_generation(self) -> int:
        return max(ceil(1 / self.generations), 1)

    @property
    def tokens(self) -> float:
        return self.completions * self.length


def step_s(
    work: StepWorkload, hardware: HardwareSpec, parameters: int, *, room: float = inf, ahead: bool = False
) -> float:
    """Estimate how many seconds a step takes. `room`: number of sequences that one vLLM engine's KV cache holds.
    `ahead`: whether the next batch is generated while this one is trained on."""
    parts = generation_s(work, hardware, parameters, room=room), training_s(work, hardware, parameters)
    return max(parts) if ahead else sum(parts)


def generation_s(work: StepWorkload, hardware: HardwareSpec, parameters: int, *, room: float = inf) -> float:
    billions = parameters / 1e9
    if hardware.rollout is Rollout.TRANSFORMERS:
        token_s = TRAINER_TOKEN_S + TRAINER_TOKEN_S_PER_BILLION * billions
    else:
        engines, split = _engines(hardware)
        sequences = work.completions / work.generations / engines
        at_once = min(sequences, max(room, 1.0))
        token_s = (VLLM_TOKEN_S + VLLM_TOKEN_S_PER_BILLION * billions / split) * (1 + at_once / DOUBLING_SEQUENCES)
        token_s *= sequences / at_once
    return work.generations * (work.limit * token_s + work.answers * TOOLS_S)


def _engines(hardware: HardwareSpec) -> tuple[int, int]:
    """Return how many copies of the model generate, and over how many GPUs each is split."""
    server = hardware.vllm_server
    if server:
        return max(server.servers * server.data_parallel, 1), max(server.tensor_parallel, 1)
    split = max(hardware.colocate_tensor_parallel, 1)
    return max(hardware.processes // split, 1), split


def training_s(work: StepWorkload, hardware: HardwareSpec, parameters: int) -> float:
    tokens = work.micro_batch * work.length
    pass_s = PASS_S + OPERATIONS * parameters * tokens / OPERATIONS_PER_S
    return work.passes * pass_s * (QUANTIZED_FACTOR if hardware.quantization is not Quantization.NONE else 1)
