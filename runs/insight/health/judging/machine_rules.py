"""Health rules about the machine: speed, stalls, idle GPUs, memory."""

from runs.insight.health.config import Config
from runs.insight.health.judging.rule import OWN, HealthRule, share_rule


def _no_gpu(config: Config) -> str:
    return "" if config.gpus else "The run has no GPU."


RULES: dict[str, HealthRule] = {
    "throughput": HealthRule(
        title="Slower than before",
        about="Slowdown relative to the usual pace, in tokens per second or seconds per step, whichever is smaller",
        warning=1.5,
        bad=4.0,
        hold=20,
        format="times",
        minimum=1.0,
        means="Steps take {value} as long as before ({now} s instead of {usual} s), with fewer tokens per "
        "second{part}.",
        try_="{check}. Then check who else is using the host{slowed_by}.",
        metric="step_time",
        follows=("slow_rewards", "vllm_full", "gpu_hot", "straggler", "length_cap", "gpu_idle"),
    ),
    "slow_rewards": share_rule(
        title="Rewards take most of a step",
        about="Share of a step’s time spent on rewards, median over 20 steps",
        warning=0.6,
        means="Rewards take {seconds} s of a step’s {whole} s ({value}), while the GPUs wait.",
        try_="Score more completions at once, shorten the rewards’ time limits, or give the host more cores.",
        metric="time/rewards_s",
        unless=_no_gpu,
    ),
    "stalled": HealthRule(
        title="No recent step",
        about="Time since the last step, as a multiple of the longest step (at least a minute, or 15 minutes for the "
        "first evaluation or save)",
        warning=3.0,
        bad=10.0,
        hold=0,
        calm=0,
        format="times",
        minimum=1.0,
        source=f"The thresholds are {OWN}; evaluations and saves count as part of a step.",
        means="No step has been completed for {quiet}, {value} the longest step ({longest}).{who}",
        try_="Check the ends of the trainer’s and vLLM’s logs: one may be waiting for the other.",
        logs=True,
        metric="step_time",
        follows=("no_agents", "no_groups"),
    ),
    "gpu_idle": HealthRule(
        title="GPU idle",
        about="Utilization of the run's least used GPU, mean over whole steps, two minutes or more in total, "
        "without evaluations; with several updates per batch, that of the busiest step",
        above=False,
        warning=10.0,
        hold=3,
        calm=10,
        format="percent100",
        maximum=100.0,
        means="GPU {gpu} is busy only {value} of the time, over whole steps: it is waiting for something.",
        try_="Check where a step’s time goes: rewards may be slow on the CPU, or the trainer and vLLM may be waiting "
        "for each other.",
        metric="gpu/{gpu}/util_percent",
        drawn=True,
        unless=_no_gpu,
        follows=("slow_rewards", "stalled", "no_agents", "no_groups"),
    ),
    "gpu_hot": HealthRule(
        title="GPU hot",
        about="Temperature of the run's hottest GPU in °C, mean over whole steps, two minutes or more in total",
        warning=88.0,
        hold=3,
        calm=10,
        source=f"The threshold is {OWN}: data-centre GPUs throttle from about 87 to 90 °C.",
        means="GPU {gpu} is at {value} °C: GPUs throttle at about this temperature.",
        try_="Check the host’s fans and its other GPUs. A lower power limit costs less speed than throttling.",
        metric="gpu/{gpu}/temperature_c",
        drawn=True,
        unless=_no_gpu,
    ),
    "gpu_memory": share_rule(
        title="GPU memory creeping up",
        about="Share of the GPU memory left free by the first steps that steady growth has used up",
        warning=0.4,
        bad=0.85,
        hold=0,
        calm=0,
        source=f"The thresholds are {OWN}; growth that settles is ignored.",
        means="GPU {gpu} used {start} GiB at first and now uses {now} of {capacity} GiB, still rising.",
        try_="Save a checkpoint soon. Check for growing lengths, memory held by custom rewards, and the cache’s share.",
        metric="gpu/{gpu}/memory_mib",
        unless=_no_gpu,
    ),
    "host_memory": share_rule(
        title="Host memory creeping up",
        about="Share of the host memory left free by the first steps that the run’s steady growth has used up",
        warning=0.4,
        bad=0.85,
        hold=0,
        calm=0,
        source=f"The thresholds are {OWN}; growth that settles is ignored.",
        means="The run used {start} GiB of the host’s memory at first and now uses {now} of {capacity} GiB, still "
        "rising.",
        try_="Save a checkpoint soon. Check for memory held by a custom reward or a data loader.",
        metric="host/run_memory_mib",
    ),
    "vllm_full": share_rule(
        title="vLLM’s cache full",
        about="Share of the time that the KV cache is over 95% full while requests wait, over whole steps",
        warning=0.5,
        hold=3,
        calm=10,
        means="vLLM’s cache is full {value} of the time while requests wait: completions are delayed or recomputed.",
        try_="Give vLLM more memory or another GPU, or shorten completions or prompts.",
        metric="vllm/kv_cache_percent",
        unless=lambda config: "" if config.served else "The run has no vLLM server.",
    ),
    "straggler": share_rule(
        title="One GPU differs from the others",
        about="Difference between the power draw of one of the trainer’s GPUs and that of the others, over whole steps",
        warning=0.35,
        hold=10,
        source=f"The threshold is {OWN}: ranks do the same work, and all of them wait for the slowest.",
        means="GPU {gpu} draws {watts} W, while the trainer’s other GPUs draw {typical} W: one rank may slow down the "
        "rest.",
        try_="Check this GPU’s temperature, its other processes and its PCIe link.",
        metric="gpu/{gpu}/power_w",
        unless=lambda config: "" if len(config.ranks) > 1 else "The trainer has at most one GPU.",
    ),
}
