"""What a sitting on GPUs is made of: set-ups, and what is measured with them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

CONTEXT_GIB = 0.6
"""A CUDA context on an H200, with cuBLAS and NCCL: what of a card's memory torch can't have."""


@dataclass(frozen=True)
class Setup:
    name: str
    slug: str
    """The shipped profile that its own is made from."""
    shape: str
    """Of tests.gpu.models; `tiny` is the model of the tests."""
    gpus: int
    says: str
    profile: dict[str, Any] = field(default_factory=dict)
    """Fields of the profile form that differ from the shipped profile's."""
    launch: dict[str, Any] = field(default_factory=dict)
    """Fields of the New run form that differ from the profile's values."""
    steps: int = 5
    kills: int = 1
    limit_s: float = 240.0
    """Longest that one launch may take from its dispatch until it is killed."""

    @property
    def batch(self) -> str:
        from controlplane.catalogue.hardware.shipped import (
            by_slug,  # Django's models: only once a sitting has set it up
        )

        at = {**by_slug(self.slug).batch, **self.profile, **self.launch}
        names = {
            "per_device_train_batch_size": "completion{s} per pass",
            "gradient_accumulation_steps": "pass{es}",
            "num_generations": "per prompt",
            "max_completion_length": "tokens each",
        }
        endings = {True: {"s": "", "es": ""}, False: {"s": "s", "es": "es"}}
        return ", ".join(
            f"{at[key]} {text.format(**endings[at[key] == 1])}" for key, text in names.items() if key in at
        )


@dataclass(frozen=True)
class Ratio:
    """Steps through the product against steps of a bare TRL script, for a set-up's `step_ratio`."""

    setup: Setup
    pairs: int = 2
    steps: int = 60
    limit_s: float = 200.0
    """Longest that one of the runs may take."""

    @property
    def name(self) -> str:
        return f"ratio-{self.setup.name}"


@dataclass(frozen=True)
class Way:
    """One way to train a set-up's model."""

    name: str
    launch: dict[str, Any] = field(default_factory=dict)
    """Fields of the New run form that differ from the profile's values."""
    bare: bool = False
    """By a bare TRL script with the arguments of the run before."""


@dataclass(frozen=True)
class Compared:
    """Several ways to train the same, one after the other on the same GPUs."""

    name: str
    says: str
    setup: Setup
    runs: tuple[Way, ...]
    """In their order; a way that is there twice alternates with the others."""
    figures: dict[str, tuple[str, str]]
    """Name -> (way, way): the steps per second of the first over those of the second."""
    steps: int = 15
    limit_s: float = 120.0
    """Longest that one of the runs may take."""


@dataclass(frozen=True)
class Starts:
    """Runs of a set-up, one after the other, for the time from the click to the first step."""

    setup: Setup
    runs: tuple[tuple[str, dict[str, Any]], ...]
    """(the figure's name, fields of the profile form that differ from the set-up's)"""
    least_s: float = 70.0
    """Without so much time left the next run is not begun."""

    @property
    def name(self) -> str:
        return self.setup.name


@dataclass(frozen=True)
class Turns:
    """The same, with both loaded on the same GPUs and training in short turns (tests.gpu.turns)."""

    setup: Setup
    rounds: int = 8
    turn_s: float = 9.0
    limit_s: float = 170.0
    """Longest that one side may take until it is warm."""

    @property
    def name(self) -> str:
        return self.setup.name

    @property
    def tokens(self) -> int:
        return 128 if self.setup.gpus else 24

    @property
    def same_length(self) -> dict[str, Any]:
        """Completions of one length on both sides, so that both do the same work."""
        forced = {"ignore_eos": True} if self.setup.gpus else {"min_new_tokens": self.tokens}
        return {"max_completion_length": self.tokens, "generation_kwargs": json.dumps(forced)}


@dataclass(frozen=True)
class Gain:
    """The guide's batch beside what "Use the memory" makes of it on the New run page (tests.gpu.gain)."""

    setup: Setup
    steps: int = 4
    limit_s: float = 110.0

    @property
    def name(self) -> str:
        return self.setup.name


Unit = Setup | Ratio | Compared | Starts | Turns | Gain
