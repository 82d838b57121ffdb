"""The stored completions that best show a finding about gamed rewards."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runs.engine.models import Run
from runs.engine.records import SampleRow
from runs.insight.completions.groups import StoredCompletion, completions
from runs.insight.health.assess import Finding
from runs.insight.health.config import Config
from workers.contract.run.evaluation import EVAL_PREFIX

EXAMPLES = 5
MIN_EXAMPLES = 3
EXAMPLE_GROUPS = 24
"""Number of newest groups among which examples are looked for."""
EXAMPLE_STEPS = 50
"""Number of steps for which a finding keeps its examples."""
WITH_EXAMPLES = frozenset(
    {
        "judge_parted",
        "length_explains",
        "length_rewarded",
        "components",
        "component_falling",
        "component_stuck",
        "solved_falling",
        "eval_falling",
    }
)
"""Rules about gamed rewards, whose findings show examples."""


def show(run: Run, config: Config, findings: Sequence[Finding], before: Mapping[str, Any], step: int) -> None:
    """Add to findings about gamed rewards the stored completions that best show them. Reads a bounded number of groups,
    and only for findings without examples or whose examples are old."""
    earlier = {finding["rule"]: finding for finding in before.get("findings") or ()}
    for finding in findings:
        if finding["rule"] not in WITH_EXAMPLES or finding["level"] == "note":
            continue
        old = earlier.get(finding["rule"], {})
        if old.get("examples") and step < old["examples_at"] + EXAMPLE_STEPS:
            finding |= {name: old[name] for name in ("examples", "examples_at")}
        else:
            finding |= {"examples": _examples(run, config, finding), "examples_at": step}


@np.errstate(over="ignore", invalid="ignore")
def _examples(run: Run, config: Config, finding: Finding) -> list[dict[str, Any]]:
    metric = str(finding["metric"])
    low = metric.removeprefix(EVAL_PREFIX).removeprefix("rewards/").removesuffix("/mean")
    if low == metric:
        low = next((part.name for part in config.components if part.checks), "")
    long = finding["rule"].startswith("length")
    mode = "eval" if metric.startswith(EVAL_PREFIX) else "train"
    rows = SampleRow.objects.filter(run=run, mode=mode, superseded=False).order_by("-step", "line")
    candidates = [
        (row, completion)
        for row in rows.only("pk", "step", "data")[:EXAMPLE_GROUPS]
        for completion in completions(row.data)
        if completion.reward is not None and (long or completion.rewards.get(low) is not None)
    ]
    scores = np.zeros(len(candidates))
    for weight, values in (
        (1.0, [completion.reward for _, completion in candidates]),
        (-1.0, [completion.rewards.get(low) or 0.0 for _, completion in candidates]),
        (1.0 if long else 0.0, [completion.tokens or 0 for _, completion in candidates]),
    ):
        column = np.array(values, dtype=float)
        if len(column) and column.std() > 0:
            scores += weight * (column - column.mean()) / column.std()
    best = sorted(range(len(candidates)), key=lambda index: -scores[index])[:EXAMPLES]
    chosen_indexes = [index for rank, index in enumerate(best) if rank < MIN_EXAMPLES or scores[index] > 1.0]
    return [_example(*candidates[index], low) for index in chosen_indexes]


def _example(row: SampleRow, completion: StoredCompletion, low: str) -> dict[str, Any]:
    return {
        "group": row.pk,
        "completion": completion.number,
        "step": row.step,
        "reward": completion.reward,
        "component": low,
        "score": completion.rewards.get(low),
        "tokens": completion.tokens,
    }
