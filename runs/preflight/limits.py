"""Limits and early-stop rules: whether they can hold, and whether their metrics will come."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop, warn

EVAL = "eval_"
LOGGED = frozenset(
    {"reward", "reward_std", "frac_reward_zero_std", "loss", "grad_norm", "learning_rate", "entropy", "kl", "epoch"}
    | {"num_tokens", "step_time", "mean_ratio", "clip_ratio/region_mean", "clip_ratio/low_mean", "clip_ratio/high_mean"}
    | {f"completions/{name}" for name in ("mean_length", "min_length", "max_length", "clipped_ratio")}
    | {f"completions/{name}_terminated_length" for name in ("mean", "min", "max")}
)
"""Metrics that TRL logs for every run; others depend on its settings."""
PREFIXES = ("rewards/", "sampling/", "time/", "clip_ratio/", "memory/", "tools/")


def check(draft: Draft) -> Iterator[Finding]:
    yield from _money(draft)
    rules = (("stop_metric", draft.limits.no_better), ("bound_metric", draft.limits.beyond))
    for field, rule in rules:
        if rule is not None:
            yield from _metric(draft, field, rule.metric)


def _money(draft: Draft) -> Iterator[Finding]:
    if draft.limits.money is None:
        return
    free = [host.name for host in draft.hosts if host.gpu_hour is None]
    if draft.hardware is not None and not (draft.hardware.trainer_gpus or draft.hardware.server_gpus):
        yield warn("limit_money", "A run on the CPU costs no GPU-hours: the limit of money never ends it.", "Clear it.")
    elif draft.hosts and len(free) == len(draft.hosts):
        cause = f"{', '.join(free[:3])} has no price per GPU-hour: the limit of money could not end the run."
        yield stop("limit_money", cause, "Set the host's price on the Hardware page, or limit the hours.")
    elif free:
        cause = f"{', '.join(free[:3])} has no price per GPU-hour: the limit of money would not hold there."
        yield warn("limit_money", cause, "Choose a host that has a price, or limit the hours.")


def _metric(draft: Draft, field: str, metric: str) -> Iterator[Finding]:
    name = metric.removeprefix(EVAL)
    if metric.startswith(EVAL) and not draft.eval_rows:
        cause = f"{metric} comes from evaluations, and the run has none."
        yield warn(field, cause, f"Set evaluation rows, or use {name}.", Fix(f"Use {name}", {field: name}))
    elif name == "kl" and not draft.value("beta"):
        yield warn(field, f"With β = 0 no {metric} is logged: the rule can't end the run.", "Give β a small value.")
    elif name.startswith("rewards/"):
        yield from _component(draft, field, metric, name)
    elif name not in LOGGED and not name.startswith(PREFIXES):
        close = difflib.get_close_matches(name, LOGGED, n=1)
        prefix = EVAL if metric.startswith(EVAL) else ""
        fixes = [Fix(f"Use {prefix}{match}", {field: prefix + match}) for match in close]
        yield warn(field, f"TRL logs no metric {metric}: the rule may never end the run.", "Check its name.", *fixes)


def _component(draft: Draft, field: str, metric: str, name: str) -> Iterator[Finding]:
    names = [reward.name for reward in draft.rewards or ()]
    component = name.removeprefix("rewards/").rpartition("/")[0] or name.removeprefix("rewards/")
    if names and component not in names:
        words = ", ".join(f"rewards/{each}/mean" for each in names[:5])
        yield warn(field, f"The reward config has no component {component}: {metric} never comes.", f"Use {words}.")
