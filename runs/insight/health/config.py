"""The parts of a run's frozen spec that the health rules need."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from runs.insight.metrics import chart_catalogue
from workers.contract.run.batch_rules import Batch
from workers.contract.run.episodes import PartSpec
from workers.contract.run.evaluation import EVAL_PREFIX
from workers.contract.run.hardware import Rollout, WeightSync
from workers.contract.run.spec import RewardSpec, RunSpec, outcome_weights
from workers.environments.entry import EntryKind
from workers.environments.library import LIBRARY as ENVIRONMENTS
from workers.rewards.library import LIBRARY

TRL_MAX_LENGTH = 512
TRL_LEARNING_RATE = 1e-6
CHECK_SYNC = {
    None: "the trainer copies the weights into vLLM within its process: restart the run",
    WeightSync.NCCL: "the run streams its weights over NCCL: look for errors of the weight sync in vLLM’s and the "
    "trainer’s logs, make sure that no other run uses the same server, and restart the run with its servers",
    WeightSync.LORA: "the run loads its adapter into vLLM over HTTP: check in vLLM’s log that it loads each new "
    "adapter, that vLLM supports all modules that the adapter changes, and that no other run uses the same server; "
    "then restart the run with its servers",
}
"""Way of sending weights -> what to check if new ones don't reach vLLM."""
LONG_RUN_STEPS = 900
"""Length of a run, in steps, from which bounds given in steps apply in full."""


@dataclass(frozen=True)
class Component:
    name: str
    weight: float
    low: float | None
    high: float | None
    """The maximum score, or None if unknown or unbounded."""
    checks: bool = False
    """True if the component checks the dataset's answer or runs its tests, so a completion's form can't game it."""

    @property
    def metric(self) -> str:
        return f"rewards/{self.name}/mean"


@dataclass(frozen=True)
class Config:
    beta: float = 0.0
    learning_rate: float = TRL_LEARNING_RATE
    updates: int = 1
    loss: str = "dapo"
    cap: int = TRL_MAX_LENGTH
    mask_truncated: bool = False
    from_vllm: bool = False
    """True if vLLM generates the completions, in the trainer or on servers."""
    corrected: bool = False
    """True if vLLM generates the completions and importance sampling corrects for the trainer's probabilities."""
    correction: str = "sequence_mask"
    served: bool = False
    sync: WeightSync | None = None
    """Way in which weights are sent to vLLM servers; None without servers."""
    max_grad_norm: float = 1.0
    components: tuple[Component, ...] = ()
    judges: tuple[tuple[str, Component], ...] = ()
    """Metric and component of the rewards that are observed but not trained on."""
    gpus: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    max_steps: int = 0
    """Number of planned steps, or 0 if unknown because the run is planned in epochs."""
    completions: int = 0
    """Completions per generation, or 0 if unknown."""
    eval_every: int = 0
    """Steps between evaluations, or 0 if there are none."""
    eval_rows: int = 0
    in_order: bool = False
    """True if prompts come in the dataset's order, so that the later ones may be harder, as in a curriculum."""
    save_every: int = 0
    turn_limit: int = 0
    """Maximum number of turns in an episode, or 0 if completions have a single turn."""
    call_limit: int = 0
    driven_by: str = ""
    """The kind of gateway whose programs drive the episodes, or "" if the run drives them."""
    tools: bool = False

    @property
    def patience(self) -> float:
        """Factor for bounds in steps, since shorter runs have to show progress earlier."""
        return min(1.0, max(1 / 3, self.max_steps / LONG_RUN_STEPS)) if self.max_steps else 1.0

    @property
    def advice(self) -> dict[str, str]:
        rate = self.learning_rate
        return {
            "lower_rate": f"lower the learning rate (from {rate:g} to about {rate / 3:.1g})",
            "higher_beta": f"raise β (from {self.beta:g} to about {max(2 * self.beta, 0.02):g})",
            "longer": f"raise max_completion_length (from {self.cap:,} to about {2 * self.cap:,})",
            "updates": f"currently {self.updates}",
            "slowed_by": self._slowed_by,
            "check_sync": CHECK_SYNC[self.sync],
        }

    @property
    def _slowed_by(self) -> str:
        """Other possible causes of slow steps on the run's hardware, as the end of a sentence."""
        hot = "whether a GPU is hot or throttled" if self.gpus else ""
        waiting = "vLLM’s waiting requests" if self.from_vllm else ""
        if hot and waiting:
            return f", {hot}, and {waiting}"
        return f" and {hot or waiting or 'whether its cores are all busy'}"

    @property
    def highest(self) -> float | None:
        return self._total(best=True)

    @property
    def lowest(self) -> float | None:
        return self._total(best=False)

    @property
    def low_to_high(self) -> float | None:
        high, low = self.highest, self.lowest
        return None if high is None or low is None else high - low

    def _total(self, *, best: bool) -> float | None:
        total = 0.0
        for part in self.components:
            end = part.high if (part.weight > 0) is best else part.low
            if part.weight and end is None:
                return None
            total += part.weight * (end or 0.0)
        return total if self.components else None


def config_of(spec: RunSpec, gpus: tuple[int, ...] = (), ranks: tuple[int, ...] = ()) -> Config:
    grpo = spec.grpo
    correction = bool(grpo.get("vllm_importance_sampling_correction", True))
    return Config(
        beta=chart_catalogue.beta(spec),
        learning_rate=float(grpo.get("learning_rate") or TRL_LEARNING_RATE),
        updates=chart_catalogue.updates_per_batch(spec),
        loss=str(grpo.get("loss_type") or "dapo"),
        cap=int(grpo.get("max_completion_length") or TRL_MAX_LENGTH),
        mask_truncated=bool(grpo.get("mask_truncated_completions")),
        from_vllm=spec.hardware.rollout is not Rollout.TRANSFORMERS,
        corrected=spec.hardware.rollout is not Rollout.TRANSFORMERS and correction,
        correction=str(grpo.get("vllm_importance_sampling_mode") or "sequence_mask"),
        served=spec.hardware.rollout is Rollout.SERVER,
        sync=spec.hardware.vllm_server.weight_sync if spec.hardware.vllm_server else None,
        max_grad_norm=float(grpo.get("max_grad_norm") or 1.0),
        components=tuple(map(_component, spec.rewards, outcome_weights(spec.rewards))),
        judges=tuple(_judges(spec)),
        gpus=gpus,
        ranks=ranks,
        max_steps=max(0, int(grpo.get("max_steps") or 0)),
        completions=Batch.of(grpo, spec.hardware.processes).completions,
        eval_every=_interval(spec, "eval") if spec.data.eval_rows else 0,
        eval_rows=spec.data.eval_rows,
        in_order=grpo.get("shuffle_dataset") is False,
        save_every=_interval(spec, "save"),
        turn_limit=spec.episodes.limits.turns if spec.episodes else 0,
        call_limit=spec.episodes.limits.calls if spec.episodes else 0,
        driven_by=spec.episodes.gateway.kind if spec.episodes and spec.episodes.gateway else "",
        tools=any(map(_is_tool, spec.episodes.parts)) if spec.episodes else False,
    )


def _is_tool(part: PartSpec) -> bool:
    entry = ENVIRONMENTS.get(part.function)
    return entry is not None and entry.kind is EntryKind.TOOL


def _interval(spec: RunSpec, act: Literal["eval", "save"]) -> int:
    """Return the number of steps between evaluations or saves, or 0 if there are none or they are planned in epochs.
    TRL's default is 500; a value below 1 is a share of the run."""
    if str(spec.grpo.get(f"{act}_strategy") or ("no" if act == "eval" else "steps")) != "steps":
        return 0
    steps = float(spec.grpo.get(f"{act}_steps") or 500)
    return int(steps) if steps >= 1 else max(1, int(steps * int(spec.grpo.get("max_steps") or 0)))


def _judges(spec: RunSpec) -> Iterator[tuple[str, Component]]:
    for reward in spec.rewards:
        if not reward.weight:
            part = _component(reward, 0.0)
            yield part.metric, part
    for reward in spec.eval_rewards:
        part = _component(reward, 0.0)
        yield EVAL_PREFIX + part.metric, part


def _component(reward: RewardSpec, weight: float) -> Component:
    entry = LIBRARY.get(reward.function)
    low, high = entry.expected_of(reward.params) if entry else (None, None)
    checks = entry is not None and not {"answer", "test_cases"}.isdisjoint(entry.needs)
    return Component(reward.name, weight, low, high, checks)
