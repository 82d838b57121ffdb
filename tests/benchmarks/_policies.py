"""The parts of a simulated run: its setting, and the behaviour of its policy at one moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from runs.insight.health.config import Component, Config


@dataclass
class Policy:
    """What a policy does at one moment; a run changes it from step to step, and so does an illness."""

    skill: float = -1.0
    """Against the prompts' difficulty."""
    form: float = 0.6
    """Chance that a completion has the wanted form."""
    style: float = 0.5
    tokens: float = 200.0
    entropy: float = 0.6
    kl: float = 0.002
    ratio: float = 1.0
    first_ratio: float = 1.0
    """Of a batch's first update, at which nothing has been learned from it."""
    clipped: float = 0.03
    grad: float = 0.4
    loss: float = 0.0
    lr: float = 1e-6
    gap: float = 0.015
    """Between vLLM's log-probabilities and the trainer's."""
    staleness: float = 0.0
    """Updates between the generation of a batch and its first use, if it is generated one step ahead."""
    weight: float = 0.98
    """Mean importance ratio."""
    failing: float = 0.0
    held_out: float = 0.0
    """What is added to the skill on held-out prompts."""
    sign: float = 1.0
    """Of the accuracy, as the scorer gives it."""
    total_sign: float = 1.0
    worth_of_length: float = 0.0
    """Share of the style's score that only the length decides."""
    family: float = 0.0
    """What is added to the skill at the prompts of one family of several."""
    alike: bool = False
    """Whether all completions of a prompt are the same."""
    form_shift: float = 0.0
    tool_fails: float = 0.05
    noise_only: bool = False
    pays_form: bool = True
    spread: float = 1.5
    """Of the prompts' difficulty."""
    texts: dict[str, float] = field(default_factory=dict)
    """Shares of completions with a sign in the text."""
    nan: float = 0.0
    slower: float = 1.0
    slow_part: str = "generation"
    """The part of a step that `slower` lengthens."""
    rewards_s: float = 0.5
    use: tuple[float, float] = (75.0, 70.0)
    power: tuple[float, float] = (420.0, 410.0)
    heat: float = 62.0
    gpu_mib: float = 60_000.0
    host_mib: float = 20_000.0
    cache: float = 50.0
    waiting: float = 0.0


Change = Callable[[Policy, int], None]
"""Makes a policy ill, so many steps after the onset."""


@dataclass(frozen=True)
class Setting:
    updates: int = 1
    prompts: int = 16
    group: int = 8
    step_s: float = 12.0
    speed: float = 0.012
    """Skill per generation at first."""
    steps: int = 600
    start: float = -1.0
    eval_every: int = 50
    save_every: int = 100
    beta: float = 0.04
    resume_at: int = 0
    cap: int = 1024
    spread: float = 1.5
    corrected: bool = True
    has_components: bool = True
    """False if the accuracy is the only reward."""
    eval_prompts: int = 64
    families: tuple[str, ...] = ()
    tools: bool = False
    resamples: bool = False
    """Whether groups without spread are replaced, in at most four more rounds."""
    takes_turns: bool = False
    """Whether vLLM's GPU is idle during all updates but a batch's first."""
    planned: int = 0
    """Planned steps, if the run ends before them."""
    warm_up: int = 0
    """Steps in which the learning rate, and with it what is learned in a step, rises to its full value; 0 for a short
    rise that slows nothing."""
    decays: bool = False
    """Whether the learning rate falls to 0 by a cosine."""
    gap_s: float = 900.0
    """Time before a resumed attempt's first step."""
    in_order: bool = False
    """Whether prompts come in the dataset's order, as a curriculum's do."""
    by_difficulty: bool = False
    """Whether prompts are drawn by how much they teach."""
    logs_kl: bool = False
    """Whether the KL is logged although β is 0."""

    def config(self) -> Config:
        return Config(
            beta=self.beta,
            updates=float(self.updates),
            cap=self.cap,
            from_vllm=True,
            corrected=self.corrected,
            served=True,
            components=(
                Component("accuracy", 1.0, 0.0, 1.0, True),
                Component("format", 0.25, 0.0, 1.0),
                Component("style", 0.25, 0.0, 1.0),
            )[: 3 if self.has_components else 1],
            tools=self.tools,
            turn_limit=6 if self.tools else 0,
            call_limit=4 if self.tools else 0,
            gpus=(0, 1),
            ranks=(0,) if self.takes_turns else (0, 1),
            max_steps=self.planned or self.steps,
            completions=self.prompts * self.group,
            eval_every=self.eval_every,
            eval_rows=self.eval_prompts if self.eval_every else 0,
            save_every=self.save_every,
            in_order=self.in_order,
        )
