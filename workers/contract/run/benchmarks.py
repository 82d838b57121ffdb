"""The standard benchmarks that are offered: tasks of EleutherAI's lm-eval, by its names."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class BenchmarkTask:
    title: str
    about: str


TASKS = {
    "gsm8k": BenchmarkTask("GSM8K", "grade-school mathematics, generated answers"),
    "arc_easy": BenchmarkTask("ARC easy", "science questions, four choices"),
    "arc_challenge": BenchmarkTask("ARC challenge", "harder science questions, four choices"),
    "hellaswag": BenchmarkTask("HellaSwag", "how a text continues, four choices"),
    "winogrande": BenchmarkTask("WinoGrande", "what a pronoun refers to, two choices"),
    "mmlu_elementary_mathematics": BenchmarkTask("MMLU, elementary mathematics", "four choices"),
    "mmlu_high_school_mathematics": BenchmarkTask("MMLU, high-school mathematics", "four choices"),
}
ENVIRONMENT = ".venv-lm-eval"
"""The folder of lm-eval's environment, next to the source."""
MOST_EXAMPLES = 100_000
USUAL_EXAMPLES = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def is_name(task: str) -> bool:
    """Return True for a possible name of a task, which becomes part of a path."""
    return bool(_NAME.fullmatch(task))
