"""GRPO's batch sizes: TRL's arithmetic and rules, and the nearest values that TRL accepts.

They are compared with the real GRPOConfig by tests/runs/launch/preflight/test_trl.py. The New run page reports problems
through runs.launch.preflight.checks.batch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from math import ceil
from typing import Any

from workers.contract.run.problem import Problem

SEARCH_LIMIT = 1024
"""Largest size tried in the search for the nearest valid ones; larger batches make no sense."""


class BatchRule(StrEnum):
    """TRL's requirements for a batch, in the order in which GRPOConfig checks them."""

    BOTH_GIVEN = "generation_batch_size and steps_per_generation exclude each other"
    WHOLE_STEPS = "the generation batch is a whole number of micro-batches"
    EVAL_GROUPS = "the evaluation batch holds whole groups"
    GROUPS = "the generation batch holds whole groups"
    TWO_OR_MORE = "a group has at least two completions"


@dataclass(frozen=True)
class Batch:
    """The sizes that determine a run's batches, with TRL's names and defaults."""

    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    num_generations: int = 8
    processes: int = 1
    """Trainer ranks, not counting the GPUs of a vLLM server."""
    steps_per_generation: int | None = None
    generation_batch_size: int | None = None
    num_iterations: int = 1
    evaluates: bool = False
    per_device_eval_batch_size: int = 8
    num_generations_eval: int | None = None

    @classmethod
    def of(cls, grpo: Mapping[str, Any], processes: int) -> "Batch":
        """Read the batch sizes from a run's GRPO settings, with TRL's defaults for those that aren't set."""
        sizes: dict[str, Any] = {name: int(grpo[name]) for name in ARGUMENTS if grpo.get(name)}
        return cls(**sizes, processes=max(1, processes))

    @property
    def micro_batch(self) -> int:
        """Completions in one forward and backward pass over all ranks."""
        return self.per_device_train_batch_size * self.processes

    @property
    def slices(self) -> int:
        if self.generation_batch_size is not None:
            return max(self.generation_batch_size // self.micro_batch, 1)
        return self.steps_per_generation or self.gradient_accumulation_steps

    @property
    def completions(self) -> int:
        return self.generation_batch_size or self.micro_batch * self.slices

    @property
    def prompts(self) -> int:
        """Prompts per generation; a run with fewer prompts makes no step."""
        return max(self.completions // self.num_generations, 1)

    @property
    def steps_per_generated(self) -> int:
        """Optimizer steps for which the completions of one generation are used."""
        return max(1, ceil(self.slices * self.num_iterations / self.gradient_accumulation_steps))

    @property
    def prompts_per_step(self) -> float:
        return self.micro_batch * self.gradient_accumulation_steps / self.num_generations


ARGUMENTS = tuple(field.name for field in fields(Batch) if field.name not in ("processes", "evaluates"))


@dataclass(frozen=True)
class BatchProblem(Problem):
    rule: BatchRule = BatchRule.GROUPS


def problems(batch: Batch) -> list[BatchProblem]:
    """List the rules that the batch breaks; return [] if GRPOConfig accepts it."""
    return [BatchProblem(field, sentence, rule=rule) for rule, field, sentence in _broken_rules(batch)]


def _broken_rules(batch: Batch) -> Iterator[tuple[BatchRule, str, str]]:
    if batch.generation_batch_size is not None and batch.steps_per_generation is not None:
        yield (
            BatchRule.BOTH_GIVEN,
            "steps_per_generation",
            "A generation batch size and steps per generation can't both be set, because one follows from the other.",
        )
        return
    if batch.generation_batch_size is not None and batch.generation_batch_size % batch.micro_batch:
        yield (
            BatchRule.WHOLE_STEPS,
            "generation_batch_size",
            f"A generation of {batch.generation_batch_size} completions can't be divided into micro-batches of "
            f"{batch.micro_batch} ({batch.per_device_train_batch_size} on each of {_ranks(batch.processes)}).",
        )
    if batch.num_generations < 2:
        yield (
            BatchRule.TWO_OR_MORE,
            "num_generations",
            "GRPO compares completions of one prompt, so it needs at least 2 of them.",
        )
        return
    if batch.completions % batch.num_generations:
        yield (
            BatchRule.GROUPS,
            "num_generations",
            f"A generation makes {_product(batch)} completions, which is not a whole number of groups of "
            f"{batch.num_generations}.",
        )
    group = batch.num_generations_eval or batch.num_generations
    eval_batch = batch.per_device_eval_batch_size * batch.processes
    if batch.evaluates and eval_batch % group:
        yield (
            BatchRule.EVAL_GROUPS,
            "per_device_eval_batch_size",
            f"An evaluation batch has {batch.per_device_eval_batch_size} × {_ranks(batch.processes)} = {eval_batch} "
            f"completions, which is not a whole number of groups of {group}.",
        )


def _ranks(processes: int) -> str:
    return f"{processes} process" if processes == 1 else f"{processes} processes"


def _product(batch: Batch) -> str:
    if batch.generation_batch_size is not None:
        return str(batch.completions)
    return f"{batch.per_device_train_batch_size} × {_ranks(batch.processes)} × {batch.slices} = {batch.completions}"


def steps(batch: Batch, rows: int, *, epochs: float) -> int:
    """Count the optimizer steps of `epochs` over `rows` prompts; an incomplete last generation is dropped."""
    micro_steps = rows // batch.prompts * batch.num_iterations * batch.slices
    return ceil(epochs * ceil(micro_steps / batch.gradient_accumulation_steps))


def epochs(batch: Batch, rows: int, *, steps: int) -> float:
    """Count the passes that `steps` optimizer steps make over `rows` prompts."""
    micro_steps = rows // batch.prompts * batch.num_iterations * batch.slices
    return steps * batch.gradient_accumulation_steps / micro_steps if micro_steps else 0.0


def nearest(batch: Batch, fields: tuple[str, ...], fits: Callable[[Batch], bool]) -> list[tuple[str, int]]:
    """Find the one-field changes to the nearest smaller and larger values for which `fits` holds."""
    candidates: list[tuple[float, str, int]] = []
    for name in fields:
        current = getattr(batch, name)
        if current is None:
            continue
        for values in (range(min(current, SEARCH_LIMIT) - 1, 0, -1), range(current + 1, SEARCH_LIMIT + 1)):
            value = next((v for v in values if fits(_with_size(batch, name, v))), None)
            if value is not None:
                candidates.append((max(value, current) / max(min(value, current), 1), name, value))
    return [(name, value) for _, name, value in sorted(candidates, key=lambda f: f[0])]


def _with_size(batch: Batch, name: str, value: int) -> Batch:
    change: dict[str, Any] = {name: value}
    return replace(batch, **change)


def repairs(batch: Batch, rule: BatchRule) -> list[tuple[str, int]]:
    """Find the nearest one-field changes that satisfy `rule` without breaking another rule."""
    remaining = {problem.rule for problem in problems(batch)} - {rule}
    return nearest(batch, _ADJUSTABLE_SIZES[rule], lambda b: {problem.rule for problem in problems(b)} <= remaining)


_ADJUSTABLE_SIZES: dict[BatchRule, tuple[str, ...]] = {
    BatchRule.BOTH_GIVEN: (),
    BatchRule.WHOLE_STEPS: ("generation_batch_size", "per_device_train_batch_size"),
    BatchRule.GROUPS: (
        "num_generations",
        "gradient_accumulation_steps",
        "per_device_train_batch_size",
        "generation_batch_size",
        "steps_per_generation",
    ),
    BatchRule.TWO_OR_MORE: ("num_generations",),
    BatchRule.EVAL_GROUPS: ("per_device_eval_batch_size", "num_generations_eval"),
}
