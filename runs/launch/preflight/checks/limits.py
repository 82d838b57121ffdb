"""Checks of limits, early-stop rules and the best checkpoint: whether they can apply and their metrics are logged."""

import difflib
from collections.abc import Iterator

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, note, stop, warn
from workers.contract.run.evaluation import EVAL_PREFIX, OTHER, OTHER_REWARD

ALWAYS_LOGGED = frozenset(
    {"reward", "reward_std", "frac_reward_zero_std", "loss", "grad_norm", "learning_rate", "entropy", "kl", "epoch"}
    | {"num_tokens", "step_time", "mean_ratio", "clip_ratio/region_mean", "clip_ratio/low_mean", "clip_ratio/high_mean"}
    | {f"completions/{name}" for name in ("mean_length", "min_length", "max_length", "clipped_ratio")}
    | {f"completions/{name}_terminated_length" for name in ("mean", "min", "max")}
)
"""Metrics that TRL logs for every run; others depend on the run's settings."""
METRIC_PREFIXES = tuple(
    f"{group}/"
    for group in (
        "rewards",
        "sampling",
        "time",
        "clip_ratio",
        "memory",
        "tools",
        "turns",
        "episodes",
        "gateway",
        "prompts",
    )
)


def check(draft: Draft) -> Iterator[Finding]:
    yield from _money(draft)
    rules = (("stop_metric", draft.limits.no_better), ("bound_metric", draft.limits.beyond))
    for field, rule in rules:
        if rule is not None:
            yield from _metric(draft, field, rule.metric, "the rule can't end the run")
    yield from _best_checkpoint(draft)
    if draft.keep_best:
        yield from _metric(draft, "keep_best", draft.keep_best, "no checkpoint is kept as the best")


def _money(draft: Draft) -> Iterator[Finding]:
    if draft.limits.money is None:
        return
    unpriced_hosts = [host.name for host in draft.hosts if host.gpu_hour is None]
    if draft.hardware is not None and not (draft.hardware.trainer_gpus or draft.hardware.server_gpus):
        yield warn("limit_money", "A run on the CPU uses no GPU-hours, so the money limit never ends it.", "Clear it.")
    elif draft.hosts and len(unpriced_hosts) == len(draft.hosts):
        cause = f"{_without_price(unpriced_hosts)}, so the money limit could not end the run."
        yield stop("limit_money", cause, "Set the host's price on the Hardware page, or limit the hours.")
    elif unpriced_hosts:
        cause = f"{_without_price(unpriced_hosts)}, so the money limit would not apply there."
        yield warn("limit_money", cause, "Choose a host with a price, or limit the hours.")


def _without_price(names: list[str]) -> str:
    return f"{', '.join(names[:3])} {'has' if len(names) == 1 else 'have'} no price per GPU-hour"


def _metric(draft: Draft, field: str, metric: str, effect: str) -> Iterator[Finding]:
    """Warn of a field's metric that will never be logged. `effect` states the consequence."""
    name = metric.removeprefix(EVAL_PREFIX)
    if metric.startswith(EVAL_PREFIX) and not draft.eval_rows:
        cause = f"{metric} comes from evaluations, but the run makes none, so {effect}."
        yield warn(field, cause, f"Set evaluation rows, or use {name}.", Fix(f"Use {name}", {field: name}))
    elif name == OTHER:
        yield from _other_rewards(draft, field, metric, effect)
    elif name == "kl" and not draft.value("beta"):
        yield warn(field, f"With β = 0, {metric} isn't logged, so {effect}.", "Set β to a small value.")
    elif name.startswith("rewards/"):
        yield from _component(draft, field, metric, effect)
    elif name not in ALWAYS_LOGGED and not name.startswith(METRIC_PREFIXES):
        matches = difflib.get_close_matches(name, ALWAYS_LOGGED, n=1)
        prefix = EVAL_PREFIX if metric.startswith(EVAL_PREFIX) else ""
        fixes = [Fix(f"Use {prefix}{match}", {field: prefix + match}) for match in matches]
        yield warn(
            field, f"TRL logs no metric {metric}, so {effect} unless a reward logs it.", "Check its name.", *fixes
        )


def _best_checkpoint(draft: Draft) -> Iterator[Finding]:
    rule = draft.limits.no_better
    if rule is None or draft.keep_best == rule.metric or not draft.value("save_total_limit"):
        return
    cause = f"The run ends long after the best {rule.metric}. By then, the checkpoint from that step may be deleted."
    fix = Fix("Keep the best one", {"keep_best": rule.metric})
    yield note("stop_metric", cause, "Keep the best checkpoint by this metric.", fix)


def _other_rewards(draft: Draft, field: str, metric: str, effect: str) -> Iterator[Finding]:
    if metric != OTHER_REWARD:
        cause = f"Only evaluations compute the other rewards, so {metric} is never logged and {effect}."
        yield warn(field, cause, f"Use {OTHER_REWARD}.", Fix(f"Use {OTHER_REWARD}", {field: OTHER_REWARD}))
    elif not draft.eval_rewards:
        cause = f"{metric} comes from a second reward config for evaluations, but none is chosen, so {effect}."
        yield warn(field, cause, "Choose one under Evaluation.", Fix("Use eval_reward", {field: "eval_reward"}))


def _component(draft: Draft, field: str, metric: str, effect: str) -> Iterator[Finding]:
    prefix = EVAL_PREFIX if metric.startswith(EVAL_PREFIX) else ""
    trained_names = [reward.name for reward in draft.rewards or ()]
    eval_names = [reward.name for reward in draft.eval_rewards]
    component = metric.removeprefix(f"{prefix}rewards/").partition("/")[0]
    if component in eval_names and not prefix:
        cause = f"{component} is computed only in evaluations, so {metric} is never logged and {effect}."
        evaluation_metric = EVAL_PREFIX + metric
        yield warn(
            field, cause, f"Use {evaluation_metric}.", Fix(f"Use {evaluation_metric}", {field: evaluation_metric})
        )
        return
    names = [*trained_names, *(eval_names if prefix else ())]
    if names and component not in names:
        metrics = ", ".join(f"{prefix}rewards/{name}/mean" for name in names[:5])
        yield warn(field, f"The reward config has no component {component}, so {effect}.", f"Use {metrics}.")
