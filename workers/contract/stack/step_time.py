"""The duration of a step on GPUs, by a rule of thumb.

- generation: as many times one token as a completion may be long. vLLM takes 2 ms for a token of all its sequences and
  0.6 ms more for each billion parameters on a GPU, and twice that with 256 sequences at once; sequences that its KV
  cache has no room for wait for others to end. The trainer's own generation takes 30 ms and 2 ms for each billion.
  An environment adds a second a turn for its answers: assumed, as tools differ.
- training: for each pass 0.25 s and 8 operations a parameter and token, at 230 tera-operations a second on each GPU;
  with quantized weights twice that.

The constants fit the runs recorded in tests/gpu/results.json within a factor of 2, all on H200s; other cards differ.
"""

from dataclasses import dataclass
from math import ceil, inf

from workers.contract.run.hardware import HardwareSpec, Quantization, Rollout

VLLM_TOKEN_S, VLLM_TOKEN_S_PER_BILLION = 0.002, 0.0006
CROWD = 256
"""Number of concurrent sequences that doubles the time of a token in vLLM."""
TRAINER_TOKEN_S, TRAINER_TOKEN_S_PER_BILLION = 0.03, 0.002
PASS_S = 0.25
OPERATIONS = 8
"""Operations per parameter and token: forward, backward, and forward again with gradient checkpointing."""
OPERATIONS_PER_S = 2.3e14
ANSWER_S = 1.0
"""Assumed seconds of the tools in a turn, with all episodes in parallel."""
UNPACKING = 2
"""Factor by which a pass over quantized weights takes longer."""


@dataclass(frozen=True)
class StepWorkload:
    """The work of a step, derived from a run's settings."""

    completions: float
    """Completions generated for one step."""
    length: int
    """The most tokens of a prompt with its completion."""
    micro_batch: int
    """Completions of one pass on one GPU."""
    passes: int
    limit: int
    """The most tokens of a completion."""
    generations: float
    """Generations per step; less than 1 where later steps reuse completions."""
    answers: int = 0
    """Most answers of the environment in an episode."""

    @property
    def steps_per_generation(self) -> int:
        return max(ceil(1 / self.generations), 1)

    @property
    def tokens(self) -> float:
        return self.completions * self.length


def step_s(
    work: StepWorkload, hardware: HardwareSpec, parameters: int, *, room: float = inf, ahead: bool = False
) -> float:
    """Estimate how many seconds a step takes. `room`: the sequences that the KV cache of one vLLM engine holds.
    `ahead`: the next batch is generated while this one is trained on."""
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
        token_s = (VLLM_TOKEN_S + VLLM_TOKEN_S_PER_BILLION * billions / split) * (1 + at_once / CROWD)
        token_s *= sequences / at_once
    return work.generations * (work.limit * token_s + work.answers * ANSWER_S)


def _engines(hardware: HardwareSpec) -> tuple[int, int]:
    """Count the copies of the model that generate, and the GPUs over which each is split."""
    server = hardware.vllm_server
    if server:
        return max(server.servers * server.data_parallel, 1), max(server.tensor_parallel, 1)
    split = max(hardware.colocate_tensor_parallel, 1)
    return max(hardware.processes // split, 1), split


def training_s(work: StepWorkload, hardware: HardwareSpec, parameters: int) -> float:
    tokens = work.micro_batch * work.length
    a_pass = PASS_S + OPERATIONS * parameters * tokens / OPERATIONS_PER_S
    return work.passes * a_pass * (UNPACKING if hardware.quantization is not Quantization.NONE else 1)
