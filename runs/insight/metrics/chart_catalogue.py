"""The charts of each section of the run page, from its frozen spec. With beta 0 there is no KL chart. A metric that is
constant or not measured in a run has a note."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from runs.insight.metrics.chart_spec import Chart, ChartGroup, ChartLine, colour, lines_of
from workers.contract.reports import metric_names
from workers.contract.run import overlapping, prompts
from workers.contract.run.batch_rules import Batch
from workers.contract.run.evaluation import OTHER_REWARD
from workers.contract.run.hardware import Rollout
from workers.contract.run.row_names import rows_metric, rows_of
from workers.contract.run.spec import RewardSpec, RunSpec, outcome_weights
from workers.contract.wire.names import reward_time
from workers.rewards.library import LIBRARY

Range = tuple[float | None, float | None]

MAX_INLINE_COMPONENTS = 6
"""Maximum number of components whose charts are shown among the other reward charts."""
STEP_PARTS = {
    "generation": "generation",
    "rewards": "rewards",
    "logps": "log-probabilities",
    "update": "update",
    "weight_sync": "weights to vLLM",
}
"""Timed part of a step (time/<part>_s) -> its label."""
APPLIES = "Share of a batch's completions to whose rows a component applies, by its choice of sources and tags"
MAX_UNFOLDED_COMPONENTS = 12
"""Number of components above which their charts are folded; the summary chart stays visible."""


def beta(spec: RunSpec) -> float:
    # TRL's default is 0, with which no reference model is loaded and no KL is logged.
    return float(spec.grpo.get("beta") or 0.0)


def updates_per_batch(spec: RunSpec) -> int:
    """Return the number of optimizer steps per batch of completions. With 1, the policy ratio is 1 by construction."""
    return Batch.of(spec.grpo, spec.hardware.processes).steps_per_generated


def clip_lines(spec: RunSpec) -> tuple[ChartLine, ...]:
    """Return the lines for shares of clipped tokens. Not every loss clips, and TRL's metric depends on the loss."""
    loss_type = str(spec.grpo.get("loss_type") or "")
    if loss_type == "cispo":
        return (ChartLine("cispo_clip_ratio", "all", "c1"),)
    if loss_type in ("sapo", "vespo"):
        return ()
    return (
        ChartLine("clip_ratio/region_mean", "all", "c1"),
        ChartLine("clip_ratio/low_mean", "low", "c2"),
        ChartLine("clip_ratio/high_mean", "high", "c3"),
    )


def of_training(spec: RunSpec, names: Collection[str]) -> Iterator[ChartGroup]:
    """Plan the charts of the trainer's metrics. `names` are the metrics reported so far."""
    components = tuple(_components(spec))
    are_inline = len(components) <= MAX_INLINE_COMPONENTS
    totals = (*_reward(spec), *_sources(names), *_other_rewards(spec))
    shares = (_zero_spread(), *_reward_shares(spec, names))
    yield ChartGroup("Reward", (*totals, *(components if are_inline else ()), *shares))
    if not are_inline:
        yield ChartGroup("Reward components", components, folded=len(components) > MAX_UNFOLDED_COMPONENTS)
    if spec.prompts.on:
        yield ChartGroup("Choice of prompts", tuple(_prompts(spec)))
    yield ChartGroup("Policy", tuple(_policy(spec)))
    yield ChartGroup("Completions", _completions())
    yield ChartGroup("Speed", (*_speed(spec), *_reward_times(spec, names)))


def of_rollout(spec: RunSpec) -> Iterator[ChartGroup]:
    if spec.hardware.rollout is not Rollout.TRANSFORMERS:
        yield ChartGroup("Sampling", _sampling(spec))
    if spec.hardware.rollout is Rollout.SERVER:
        yield ChartGroup("vLLM", _servers())


def of_machine(spec: RunSpec | None, gpus: Sequence[int]) -> ChartGroup:
    sleeps = spec is not None and spec.hardware.rollout == Rollout.COLOCATE and spec.hardware.colocate_sleep
    ranks = _ranks(spec) if spec and gpus and not sleeps else ()
    memory = (ChartLine("host/memory_mib", "host", "c1"), ChartLine("host/run_memory_mib", "this run", "c2"))
    cpu = (ChartLine("host/cpu_percent", "CPU", "c3"),)
    host = (
        Chart("host-memory", "Host memory", memory, format="mib", zero=True, x="time"),
        Chart("host-cpu", "Host CPU", cpu, format="percent100", zero=True, x="time"),
    )
    return ChartGroup("Machine", (*_gpus(gpus, sleeps=sleeps), *ranks, *host))


# --- reward ----------------------------------------------------------------------------------------------------


def _reward(spec: RunSpec) -> Iterator[Chart]:
    low, high = _total_range(spec)
    total = ChartLine("reward", "reward", "c8", band="reward_std", evaluation="eval_reward", low=low, high=high)
    selection_note = ". Includes only the groups trained on, so compare runs by evaluations" if spec.prompts.on else ""
    hint = f"Weighted sum of the components; the band is one standard deviation{selection_note}"
    yield Chart("reward", "Reward, total", (total,), help=hint)
    if len(spec.rewards) > 1:
        parts = tuple(
            ChartLine(f"rewards/{reward.name}/mean", reward.name, colour(i), weight=weight)
            for i, (reward, weight) in enumerate(zip(spec.rewards, outcome_weights(spec.rewards), strict=True))
        )
        yield Chart("weighted", "Components, weighted", parts, help="Mean of each component times its weight")


def _sources(names: Collection[str]) -> Iterator[Chart]:
    """Plan a chart of each figure of the prompts from each source or with each first tag."""
    hint = "Mean total reward of the prompts from each source or with each first tag, by the dataset’s metadata"
    if lines := lines_of(sorted(prompts.sources(names).items())):
        yield Chart("reward-sources", "Reward by source", lines, help=hint)
    if lines := lines_of(sorted(prompts.sources(names, prompts.SOURCE_ZERO_SPREAD).items())):
        hint = "Share of each source’s prompt groups in which all completions got the same reward"
        yield Chart("zero-sources", "Zero variance by source", lines, format="percent", zero=True, help=hint)
    if lines := lines_of(sorted(prompts.sources(names, prompts.SOURCE_LENGTH).items())):
        hint = "Mean tokens per completion of each source’s prompts"
        yield Chart("length-sources", "Length by source", lines, format="tokens", zero=True, help=hint)


def _other_rewards(spec: RunSpec) -> Iterator[Chart]:
    if not spec.eval_rewards:
        return
    hint = "Weighted sum, on held-out rows, of the rewards that are only evaluated and never trained on"
    yield Chart.single("other-reward", "Evaluation, other rewards", OTHER_REWARD, "total", "c8", help=hint)
    numbered = enumerate(spec.eval_rewards, len(spec.rewards))
    parts = tuple(ChartLine(f"eval_rewards/{reward.name}/mean", reward.name, colour(i)) for i, reward in numbered)
    yield Chart("other-rewards", "Evaluation, components of other rewards", parts, help="Unweighted mean of each")


def _components(spec: RunSpec) -> Iterator[Chart]:
    for i, reward in enumerate(spec.rewards):
        mean = f"rewards/{reward.name}/mean"
        std, (low, high) = f"rewards/{reward.name}/std", _range(reward)
        line = ChartLine(mean, reward.name, colour(i), band=std, evaluation=f"eval_{mean}", low=low, high=high)
        hint = f"{reward.name}: unweighted mean over {rows_of(reward.applies_to)}; weight {reward.weight:g}"
        yield Chart(f"reward-{i}", reward.name, (line,), help=hint)


def _range(reward: RewardSpec) -> Range:
    entry = LIBRARY.get(reward.function)
    return entry.expected_of(reward.params) if entry else (None, None)


def _total_range(spec: RunSpec) -> Range:
    """Return the sum of the weighted components' ranges, or (None, None) if the range of a component is open."""
    low = high = 0.0
    for reward, weight in zip(spec.rewards, outcome_weights(spec.rewards), strict=True):
        bottom, top = _range(reward)
        if bottom is None or top is None:
            return None, None
        edges = (bottom * weight, top * weight, *((0.0,) if reward.applies_to else ()))  # of rows without a score
        low += min(edges)
        high += max(edges)
    return low, high


def _reward_shares(spec: RunSpec, names: Collection[str]) -> Iterator[Chart]:
    if lines := lines_of(((f"rewards/{reward.name}/failed", reward.name) for reward in spec.rewards), names):
        hint = "Share of a batch's completions on which a component failed, so they have no score from it"
        yield Chart("failed", "Scoring failures", lines, format="percent", zero=True, help=hint)
    if lines := lines_of(((rows_metric(reward.name), reward.name) for reward in spec.rewards), names):
        yield Chart("applies", "Completions by component", lines, format="percent", zero=True, help=APPLIES)


def _zero_spread() -> Chart:
    zero = (ChartLine("frac_reward_zero_std", "zero variance", "c6"),)
    hint = "Share of the prompt groups trained on in which all completions got the same reward"
    return Chart("zero-spread", "Zero-variance groups", zero, format="percent", zero=True, help=hint)


# --- choice of prompts -----------------------------------------------------------------------------------------


def _prompts(spec: RunSpec) -> Iterator[Chart]:
    if spec.prompts.extra_rounds:
        yield from _replaced_groups(spec)
    hint = "Training prompts whose recent groups teach, whose recent groups teach little, and that were never seen"
    yield _by_kind("prompts-known", "What the prompts teach", prompts.share_of_prompts, hint)
    if spec.prompts.by_difficulty:
        hint = "Expected shares of the next sampled prompts, by weight"
        yield _by_kind("prompts-drawn", "Sampled prompts", prompts.share_of_draws, hint)
    hint = "Mean recent reward over all prompts seen, each counted is_on_policy; includes replaced groups"
    yield Chart.single("prompts-reward", "Reward of all prompts seen", prompts.MEAN_REWARD, "reward", "c8", help=hint)


def _by_kind(name: str, title: str, metric: Callable[[str], str], hint: str) -> Chart:
    lines = (
        ChartLine(metric(prompts.TEACHES), "teach", "c3"),
        ChartLine(metric(prompts.TEACH_LITTLE), "little", "c6"),
        ChartLine(metric(prompts.UNSEEN), "unseen", "c8"),
    )
    return Chart(name, title, lines, format="percent", zero=True, help=hint, stack=True)


def _replaced_groups(spec: RunSpec) -> Iterator[Chart]:
    spread_of = f"the component {spec.prompts.spread_in}" if spec.prompts.spread_in else "the total reward"
    groups = (ChartLine(prompts.DRAWN_WITHOUT, "before", "c3"), ChartLine(prompts.WITHOUT_SPREAD, "after", "c6"))
    hint = (
        f"Share of groups without spread in {spread_of}: before replacement, and after it among the groups trained on"
    )
    yield Chart("prompts-replaced", "Groups without spread", groups, format="percent", zero=True, help=hint)
    single = partial(Chart.single, zero=True)
    hint = "Completion tokens generated in the extra rounds of each generation, used or not"
    yield single("prompts-extra", "Extra generation", prompts.EXTRA_TOKENS, "tokens", "c2", format="tokens", help=hint)
    hint = f"Extra rounds per generation, at most {spec.prompts.extra_rounds}"
    yield single("prompts-rounds", "Extra rounds", prompts.EXTRA_ROUNDS, "rounds", "c2", help=hint)
    hint = "Prompts per generation whose group has spread"
    yield single("prompts-effective", "Effective prompts", prompts.EFFECTIVE, "prompts", "c1", help=hint)


# --- policy ----------------------------------------------------------------------------------------------------


def _policy(spec: RunSpec) -> Iterator[Chart]:
    if beta(spec):
        yield Chart.single("kl", "KL to the reference", "kl", "KL", "c1", zero=True)
    is_on_policy = updates_per_batch(spec) <= 1
    if lines := clip_lines(spec):
        note = "0 by construction, because there is one update per batch." if is_on_policy else ""
        yield Chart("clip", "Clipped tokens", lines, format="percent", zero=True, note=note)
    note = "1 by construction, because there is one update per batch." if is_on_policy else ""
    yield Chart.single("ratio", "Policy ratio", "mean_ratio", "ratio", "c1", note=note)
    yield Chart.single("entropy", "Entropy", "entropy", "entropy", "c1", help="Mean token entropy, in nats")
    loss: tuple[ChartLine, ...] = (ChartLine("loss", "loss", "c1"),)
    if spec.grpo.get("entropy_coef") or spec.grpo.get("use_adaptive_entropy"):
        loss = (*loss, ChartLine("policy_loss", "without entropy bonus", "c2"))
    yield Chart("loss", "Loss", loss, help="Values near 0 are normal for GRPO: watch the reward instead")
    yield Chart.single("grad", "Gradient norm", "grad_norm", "norm", "c1", zero=True, help="Norm before clipping")
    yield Chart.single("lr", "Learning rate", "learning_rate", "rate", "c1", zero=True)


# --- completions -----------------------------------------------------------------------------------------------


def _completions() -> tuple[Chart, ...]:
    length = (
        ChartLine("completions/max_length", "max", "c5"),
        ChartLine("completions/mean_length", "mean", "c1", evaluation="eval_completions/mean_length"),
        ChartLine("completions/min_length", "min", "c2"),
    )
    end_lines = (
        ChartLine("completions/max_terminated_length", "max", "c5"),
        ChartLine("completions/mean_terminated_length", "mean", "c1"),
        ChartLine("completions/min_terminated_length", "min", "c2"),
    )
    truncated = (ChartLine("completions/clipped_ratio", "truncated", "c6"),)
    hint = "Tokens of the completions that ended normally; 0 if none did"
    truncated_hint = "Share of completions truncated at the length limit"
    return (
        Chart("length", "Length", length, format="tokens", zero=True, help="Tokens per completion"),
        Chart("length-ended", "Length (completed)", end_lines, format="tokens", zero=True, help=hint),
        Chart("truncated", "Truncated", truncated, format="percent", zero=True, help=truncated_hint),
    )


# --- speed -----------------------------------------------------------------------------------------------------


def _reward_times(spec: RunSpec, names: Collection[str]) -> Iterator[Chart]:
    lines = lines_of(((reward_time(reward.name), reward.name) for reward in spec.rewards), names)
    if len(lines) > 1:  # a single reward has the time of all rewards
        hint = "Seconds per batch for each reward, on the trainer's first rank"
        yield Chart("reward-time", "Time of each reward", lines, format="seconds", zero=True, help=hint)


def _speed(spec: RunSpec) -> Iterator[Chart]:
    yield Chart.single("step-time", "Step time", "step_time", "step", "c1", format="seconds", zero=True)
    parts = lines_of((f"time/{part}_s", label) for part, label in STEP_PARTS.items())
    if spec.hardware.rollout is Rollout.TRANSFORMERS:
        parts = parts[:-1]  # no weights are sent
    hint = "Seconds per part of a step, on the trainer's first rank"
    yield Chart("step-split", "Where a step's time goes", parts, format="seconds", zero=True, stack=True, help=hint)
    yield Chart.single("tokens", "Tokens per second", "tokens_per_second", "tok/s", "c3", format="rate", zero=True)


# --- vLLM ------------------------------------------------------------------------------------------------------


def _sampling(spec: RunSpec) -> tuple[Chart, ...]:
    ratio = "sampling/importance_sampling_ratio"
    gap = "sampling/sampling_logp_difference"
    off = spec.grpo.get("vllm_importance_sampling_correction") is False
    note = "Not measured, because the correction of vLLM's sampling is off." if off else ""
    gaps = (ChartLine(f"{gap}/mean", "mean", "c1"), ChartLine(f"{gap}/max", "max", "c2"))
    ratios = (
        ChartLine(f"{ratio}/max", "max", "c2"),
        ChartLine(f"{ratio}/mean", "mean", "c1"),
        ChartLine(f"{ratio}/min", "min", "c5"),
    )
    return (
        Chart("sampling-gap", "Log-probability gap, vLLM to trainer", gaps, zero=True, note=note),
        Chart("sampling-ratio", "Importance ratio, vLLM to trainer", ratios, note=note),
        _importance_sampling(spec, note),
        *_weight_sync(spec),
        *(_generating_ahead() if spec.ahead else ()),
    )


def _weight_sync(spec: RunSpec) -> tuple[Chart, ...]:
    """Return the charts of the fixed sequences that the trainer and vLLM score after weight syncs."""
    sleeps = spec.hardware.rollout is Rollout.COLOCATE and spec.hardware.colocate_sleep
    note = "Not measured, because vLLM sleeps between batches." if sleeps else ""
    arrived = (
        ChartLine(metric_names.VLLM_CHANGED, "tokens that changed", "c1"),
        ChartLine(metric_names.VLLM_FOLLOWED, "share of the change", "c2"),
    )
    change = (
        ChartLine(metric_names.POLICY_CHANGE, "since the first batch", "c1"),
        ChartLine(metric_names.LOGP_GAP, "vLLM to trainer", "c2"),
    )
    why = (
        "On fixed sequences, tokens whose probability in vLLM has changed with the last weight sync (0: no weights "
        "arrive) and, once it exceeds rounding, how much of the policy's change vLLM shows (about 1: all of it)"
    )
    what = "Mean absolute change of the trainer's log-probabilities on fixed sequences, and vLLM's distance from them"
    return (
        Chart("sync-followed", "Weights that reach vLLM", arrived, format="percent", help=why, note=note),
        Chart("sync-change", "Policy change, nats per token", change, zero=True, help=what, note=note),
    )


def _importance_sampling(spec: RunSpec, note: str) -> Chart:
    mode = str(spec.grpo.get("vllm_importance_sampling_mode", "sequence_mask"))
    unit = "Completions" if mode.startswith("sequence") else "Tokens"
    if mode.endswith("_mask"):
        line = ChartLine("sampling/share_masked", "masked", "c6")
        hint = "The importance ratio is above the cap, so the loss ignores these"
    else:
        line = ChartLine(overlapping.TRUNCATED, "truncated", "c6")
        hint = "The importance ratio is beyond a bound, so the loss uses the bound instead"
    id_, title = line.metric.replace("/share_", "-"), f"{unit} {line.label} by the correction"
    return Chart(id_, title, (line,), format="percent", zero=True, help=hint, note=note)


def _generating_ahead() -> tuple[Chart, ...]:
    stale_lines = (ChartLine(overlapping.STALENESS, "mean", "c1"),)
    hint = "Optimizer steps between generating a batch and first training on it"
    times = (
        ChartLine(overlapping.AHEAD_SECONDS, "generated in", "c2"),
        ChartLine("time/generation_s", "waited for", "c1"),
    )
    why = "Time that vLLM takes to generate a batch ahead, and the time that the trainer still waits for it"
    return (
        Chart("sampling-staleness", "Staleness", stale_lines, zero=True, help=hint),
        Chart("sampling-ahead", "Generation ahead", times, format="seconds", zero=True, help=why),
    )


def _servers() -> tuple[Chart, ...]:
    requests = (
        ChartLine("vllm/requests_running", "running", "c1"),
        ChartLine("vllm/requests_waiting", "waiting", "c2"),
    )
    speed = (
        ChartLine("vllm/generated_tokens_per_s", "generated", "c3"),
        ChartLine("vllm/prompt_tokens_per_s", "prompt", "c5"),
    )
    cache = (ChartLine("vllm/kv_cache_percent", "used", "c1"),)
    hits = (ChartLine("vllm/prefix_hit_percent", "hits", "c3"),)
    hint = "Share of prompt tokens that were already in the server's cache"
    return (
        Chart("vllm-requests", "Requests", requests, zero=True, x="time"),
        Chart("vllm-tokens", "Tokens per second of vLLM", speed, format="rate", zero=True, x="time"),
        Chart("vllm-cache", "KV cache in use", cache, format="percent100", zero=True, x="time"),
        Chart("vllm-prefix", "Prefix cache hits", hits, format="percent100", zero=True, x="time", help=hint),
    )


# --- the machine -----------------------------------------------------------------------------------------------


SAMPLING_HINT = "Sampled every 2 seconds, so shorter peaks may be missing"
SLEEP_NOTE = "The trainer's peak isn't shown, because torch also counts memory that the sleeping vLLM has released"


def _gpus(gpus: Sequence[int], *, sleeps: bool) -> Iterator[Chart]:
    if not gpus:
        return
    for id_, title, name, unit in (
        ("gpu-memory", "GPU memory", "memory_mib", "mib"),
        ("gpu-use", "GPU use", "util_percent", "percent100"),
        ("gpu-power", "GPU power", "power_w", "watts"),
        ("gpu-temperature", "GPU temperature, °C", "temperature_c", "number"),
    ):
        lines = lines_of((f"gpu/{gpu}/{name}", f"GPU {gpu}") for gpu in gpus)
        memory = id_ == "gpu-memory"
        help_text, note = SAMPLING_HINT if memory else "", SLEEP_NOTE if memory and sleeps else ""
        yield Chart(id_, title, lines, format=unit, zero=True, x="time", help=help_text, note=note)


def _ranks(spec: RunSpec) -> Iterator[Chart]:
    ranks = range(max(1, spec.hardware.processes))
    lines = lines_of((f"memory/rank{rank}/reserved_mib", f"rank {rank}") for rank in ranks)
    hint = "Peak of torch's reserved memory so far, for each rank"
    yield Chart("rank-memory", "Trainer's peak memory", lines, format="mib", zero=True, help=hint)
