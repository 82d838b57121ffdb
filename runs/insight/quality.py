"""The quality of a saved model: its run's metrics at the checkpoint's step, and the run's health."""

import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from runs.engine.artifacts.saved_models import SavedModel
from runs.engine.checkpoints import Checkpoint
from runs.engine.gain import gain
from runs.engine.models import Run
from runs.insight.health import page as health
from runs.insight.metrics.series import Series, series
from runs.insight.metrics.trend import REWARD
from workers.contract.run import evaluation

LABELS = {REWARD: "Reward", "eval_reward": "Validation reward", "kl": "KL"}


@dataclass(frozen=True)
class Quality:
    figures: list[tuple[str, float | None]]
    """Metrics, as (label, value at the checkpoint's step); the reward comes first if the run has one."""
    gain: float | None
    last: float | None
    best: float | None
    best_step: int
    health: health.Card | None


def best_metric(run: Run) -> str:
    """Return the metric by which the run keeps its best checkpoint, or "" if it keeps none."""
    return str(run.spec.get("keep_best") or "")


def labels_of(run: Run) -> dict[str, str]:
    """Return the metrics by which a run's checkpoints are compared, with their labels."""
    best = best_metric(run)
    labels = LABELS | ({} if best in LABELS or not best else {best: best})
    return {name: label for name, label in labels.items() if name in run.last_metrics}


def figures_of(run: Run, checkpoints: Sequence[Checkpoint]) -> list[dict[str, float | None]]:
    """Return the value of each metric for each checkpoint, or None if a later attempt has made the checkpoint void."""
    labels = labels_of(run) if checkpoints else {}
    histories = series(run, list(labels), sys.maxsize)["series"] if labels else {}

    def figure(name: str, step: int) -> float | None:
        values = histories[name]["value"][: _count_until(histories[name], step)]
        return evaluation.checkpoint_figure(name, values[-evaluation.FIGURE_STEPS :])

    return [{name: None if point.superseded else figure(name, point.step) for name in labels} for point in checkpoints]


def of(model: SavedModel) -> Quality:
    run, checkpoint = model.trained_by, model.checkpoint
    labels = labels_of(run)
    [figures] = figures_of(run, [checkpoint])
    rewards = series(run, [REWARD], sys.maxsize)["series"][REWARD]
    values = rewards["value"]
    best_index = max(range(len(values)), key=values.__getitem__, default=None)
    return Quality(
        figures=[(labels[name], value) for name, value in figures.items()],
        gain=None if checkpoint.superseded else gain(values[: _count_until(rewards, checkpoint.step)]),
        last=values[-1] if values else None,
        best=None if best_index is None else values[best_index],
        best_step=0 if best_index is None else rewards["step"][best_index] or 0,
        health=health.card(run),
    )


def _count_until(history: Series, step: int) -> int:
    return bisect_right([at or 0 for at in history["step"]], step)
