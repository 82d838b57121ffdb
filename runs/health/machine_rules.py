"""Rules about the machine: speed, stalls, idle GPUs."""

from __future__ import annotations

from runs.health.config import Config
from runs.health.rule import OWN, HealthRule


def _no_gpu(config: Config) -> str:
    return "" if config.gpus else "The run has no GPU."


RULES: tuple[HealthRule, ...] = (
    HealthRule(
        id="throughput",
        title="Slower than before",
        about="How many times slower than usual: in tokens a second and in seconds a step, whichever is less",
        watch=2.0,
        bad=4.0,
        hold=20,
        format="times",
        least=1.0,
        source=f"The bounds are {OWN}.",
        means="Steps take {value} as long as before ({now} s, was {usual} s), with fewer tokens a second.",
        try_="See who else uses the host, whether a GPU is hot or throttled, and vLLM’s waiting requests.",
        metric="step_time",
    ),
    HealthRule(
        id="stalled",
        title="No recent step",
        about="Time since the last step, as a multiple of the longest step (at least a minute)",
        watch=3.0,
        bad=10.0,
        hold=0,
        format="times",
        least=1.0,
        source=f"The bounds are {OWN}; evaluations and saves count as steps’ times.",
        means="No step has ended for {quiet}: far longer than any step before.",
        try_="Look at the ends of the trainer’s and vLLM’s logs: one may wait for the other.",
        metric="step_time",
    ),
    HealthRule(
        id="gpu_idle",
        title="GPU idle",
        about="Use of the least used GPU of the run, mean over two minutes",
        above=False,
        watch=10.0,
        hold=120,
        clock=True,
        format="percent100",
        most=100.0,
        source=f"The bound is {OWN}.",
        means="GPU {gpu} has been used {value} of the time for two minutes and more: it waits for something.",
        try_="Look at the step’s time split: slow rewards on the CPU, or one side waiting for the other?",
        metric="gpu/{gpu}/util_percent",
        drawn=True,
        unless=_no_gpu,
    ),
)
