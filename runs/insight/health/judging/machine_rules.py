"""Rules about the machine: speed, stalls, idle GPUs."""

from __future__ import annotations

from runs.insight.health.config import Config
from runs.insight.health.judging.rule import OWN, HealthRule


def _no_gpu(config: Config) -> str:
    return "" if config.gpus else "The run has no GPU."


def _not_served(config: Config) -> str:
    return "" if config.served else "The run has no vLLM server."


def _one_rank(config: Config) -> str:
    return "" if len(config.ranks) > 1 else "The trainer has one GPU at most."


RULES: tuple[HealthRule, ...] = (
    HealthRule(
        id="throughput",
        title="Slower than before",
        about="How many times slower than usual: in tokens a second and in seconds a step, whichever is less",
        warning=1.5,
        bad=4.0,
        hold=20,
        format="times",
        least=1.0,
        source=f"The thresholds are {OWN}.",
        means="Steps take {value} as long as before ({now} s, was {usual} s), with fewer tokens a second. {part}",
        try_="See who else uses the host{slowed_by}.",
        metric="step_time",
        follows=("slow_rewards", "vllm_full", "gpu_hot", "straggler", "length_cap", "gpu_idle"),
    ),
    HealthRule(
        id="slow_rewards",
        title="Rewards take most of a step",
        about="Share of a step that goes into rewards, median over 20 steps",
        warning=0.6,
        format="percent",
        most=1.0,
        source=f"The threshold is {OWN}.",
        means="Rewards take {seconds} s of a step’s {whole} s ({value}): the GPUs wait for them meanwhile.",
        try_="Score more completions at once, shorten the rewards’ time limits, or give the host more cores.",
        metric="time/rewards_s",
        unless=_no_gpu,
    ),
    HealthRule(
        id="stalled",
        title="No recent step",
        about="Time since the last step, as a multiple of the longest step (at least a minute; for the first "
        "evaluation or save 15 minutes)",
        warning=3.0,
        bad=10.0,
        hold=0,
        calm=0,
        format="times",
        least=1.0,
        source=f"The thresholds are {OWN}; evaluations and saves count as steps’ times.",
        means="No step has ended for {quiet}: {value} as long as a step takes at most ({longest}).{who}",
        try_="Look at the ends of the trainer’s and vLLM’s logs: one may wait for the other.",
        logs=True,
        metric="step_time",
        follows=("no_agents", "no_groups"),
    ),
    HealthRule(
        id="gpu_idle",
        title="GPU idle",
        about="Use of the least used GPU of the run, mean over whole steps of two minutes or more, without evaluations",
        above=False,
        warning=10.0,
        hold=3,
        calm=10,
        format="percent100",
        most=100.0,
        source=f"The threshold is {OWN}.",
        means="GPU {gpu} is used {value} of the time, over whole steps: it waits for something.",
        try_="Look at where a step’s time goes: slow rewards on the CPU, or one side waiting for the other?",
        metric="gpu/{gpu}/util_percent",
        drawn=True,
        unless=_no_gpu,
        follows=("slow_rewards", "stalled", "no_agents", "no_groups"),
    ),
    HealthRule(
        id="gpu_hot",
        title="GPU hot",
        about="Temperature of the hottest GPU of the run in °C, mean over whole steps of two minutes or more",
        warning=88.0,
        hold=3,
        calm=10,
        source=f"The threshold is {OWN}: data-centre cards slow down from about 87 to 90 °C.",
        means="GPU {gpu} is at {value} °C: it slows itself down at about this temperature.",
        try_="Look at the host’s fans and its other GPUs; a lower power limit costs less speed than throttling.",
        metric="gpu/{gpu}/temperature_c",
        drawn=True,
        unless=_no_gpu,
    ),
    HealthRule(
        id="gpu_memory",
        title="GPU memory creeping up",
        about="Share of what was free on a GPU after the first steps that steady growth has taken",
        warning=0.5,
        bad=0.85,
        hold=0,
        calm=0,
        format="percent",
        most=1.0,
        source=f"The thresholds are {OWN}; growth that settles is ignored.",
        means="GPU {gpu} had {start} GiB in use and now has {now} of {capacity}, and it still rises.",
        try_="Save a checkpoint soon. Look at growing lengths, what a custom reward keeps, and the cache’s share.",
        metric="gpu/{gpu}/memory_mib",
        unless=_no_gpu,
    ),
    HealthRule(
        id="host_memory",
        title="Host memory creeping up",
        about="Share of the host’s memory, free of this run after the first steps, that its steady growth has taken",
        warning=0.5,
        bad=0.85,
        hold=0,
        calm=0,
        format="percent",
        most=1.0,
        source=f"The thresholds are {OWN}; growth that settles is ignored.",
        means="The run had {start} GiB of the host’s memory and now has {now} of {capacity}, still rising.",
        try_="Save a checkpoint soon. Look at what a custom reward or a data loader keeps.",
        metric="host/run_memory_mib",
    ),
    HealthRule(
        id="vllm_full",
        title="vLLM’s cache full",
        about="Share of time in which the KV cache is over 95% full and requests wait, over whole steps",
        warning=0.5,
        hold=3,
        calm=10,
        format="percent",
        most=1.0,
        source=f"The threshold is {OWN}.",
        means="For {value} of the time vLLM’s cache is full while requests wait: completions are put off or redone.",
        try_="Give vLLM more memory or another GPU, or shorten completions or prompts.",
        metric="vllm/kv_cache_percent",
        unless=_not_served,
    ),
    HealthRule(
        id="straggler",
        title="One GPU differs from the others",
        about="How far the power of one of the trainer’s GPUs is from that of the others, over whole steps",
        warning=0.35,
        hold=10,
        format="percent",
        most=1.0,
        source=f"The threshold is {OWN}: ranks do the same work, and all wait for the slowest.",
        means="GPU {gpu} draws {watts} W, where the trainer’s others draw {typical} W: one rank may hold up the rest.",
        try_="Look at that GPU’s temperature, other processes on it, and its slot’s link.",
        metric="gpu/{gpu}/power_w",
        unless=_one_rank,
    ),
)
