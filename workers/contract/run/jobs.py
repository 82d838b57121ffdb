"""Jobs: runs that don't train but do something with a run's model. Standard library only.

A job's spec is that of the run, with the job's kind and hardware. spec.start_from is the checkpoint that the job uses:
the adapter of spec.model, or all weights.
"""

import re
from dataclasses import dataclass
from typing import Any

MERGE = "merge"
ARCHIVE = "archive"
PUSH = "push"
BENCHMARK = "benchmark"
SERVE = "serve"
GGUF = "gguf"
WARM = "warm"

FLOAT32 = "float32"
LOOPBACK = "127.0.0.1"
GGUF_SCRIPT = "convert_hf_to_gguf.py"
"""llama.cpp's script that converts a model, in the root of a checkout."""
GGUF_ENDING = ".gguf"


@dataclass(frozen=True)
class GgufType:
    label: str
    bits: float


GGUF_TYPES = {
    "auto": GgufType("auto: bf16 or f16, like the weights", 16),
    "bf16": GgufType("bf16: 16 bits, range of float32", 16),
    "f16": GgufType("f16: 16 bits, finer, smaller range", 16),
    "q8_0": GgufType("q8_0: 8 bits, about half the size", 8.5),
}
"""Types by their name in the script's --outtype."""
_GGUF_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,149}")


@dataclass(frozen=True)
class BenchmarkTask:
    title: str
    about: str


BENCHMARK_TASKS = {
    "gsm8k": BenchmarkTask("GSM8K", "grade-school mathematics, generated answers"),
    "arc_easy": BenchmarkTask("ARC easy", "science questions, four choices"),
    "arc_challenge": BenchmarkTask("ARC challenge", "harder science questions, four choices"),
    "hellaswag": BenchmarkTask("HellaSwag", "how a text continues, four choices"),
    "winogrande": BenchmarkTask("WinoGrande", "what a pronoun refers to, two choices"),
    "mmlu_elementary_mathematics": BenchmarkTask("MMLU, elementary mathematics", "four choices"),
    "mmlu_high_school_mathematics": BenchmarkTask("MMLU, high-school mathematics", "four choices"),
}
"""The standard benchmarks on offer, by their names in EleutherAI's lm-eval."""
BENCHMARK_ENVIRONMENT = ".venv-lm-eval"
MAX_BENCHMARK_EXAMPLES = 100_000
USUAL_BENCHMARK_EXAMPLES = 100
_BENCHMARK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class MergeSettings:
    dtype: str = ""
    """Dtype of the merged weights: "" for the base model's dtype, or FLOAT32, which rounds nothing."""


@dataclass(frozen=True)
class ArchiveSettings:
    name: str
    card: str


@dataclass(frozen=True)
class PushSettings:
    repository: str
    card: str
    base: str
    """The name that replaces the base model's folder on this host in all files."""
    private: bool = True
    """True if a repository that the push creates is private."""
    add: bool = False


@dataclass(frozen=True)
class BenchmarkSettings:
    tasks: tuple[str, ...]
    """lm-eval's names (BENCHMARK_TASKS, or tasks of the host's own folder)."""
    limit: int
    """Number of examples of each task, from its start; 0 for all."""


@dataclass(frozen=True)
class GgufSettings:
    name: str
    type: str


@dataclass(frozen=True)
class ServeSettings:
    idle_minutes: float = 15.0
    """Minutes without a chat turn or a request after which the server ends."""
    gives_way_s: float = 20.0
    """Idle seconds after which the server ends while another run is waiting for its GPUs, unless it listens for
    requests."""
    address: str = ""
    """Address on which the server listens for HTTP requests, on its placement's last port; "" for chat only."""


@dataclass(frozen=True)
class WarmSettings:
    graphs: int = 0
    """Largest batch with a CUDA graph; 0 for vLLM's own choice."""
    adapters: int = 1
    """Maximum number of adapters that requests may name at the same time."""


@dataclass(frozen=True)
class WarmNews:
    """The content of FileName.WARM, which the control plane sends through the supervisor."""

    user: str = ""
    """The attempt that uses the server; when it changes, the adapters of the previous one are removed."""
    leave: str = ""
    """The reason why the server must end; "" if it stays."""
    former: tuple[str, ...] = ()
    """Attempts that used the server earlier, added by the supervisor because the server's program may start after they
    ended."""


@dataclass(frozen=True)
class JobKind:
    label: str
    many: str
    reads_rows: bool = False
    """True if the job needs the dataset's rows on its host."""
    loads_models: bool = True
    """True if the job needs the run's models; otherwise the checkpoint's own files are enough."""
    pushes: bool = False
    """True if the job writes to the hub: it gets the hub's token as its only secret, and undoes an unfinished push when
    it is stopped."""
    fetches: bool = False
    """True if the job fetches data from the hub while it runs, without a token."""
    working: str = "Working."
    """Sentence on pages while the job runs."""
    stopped: str = "Nothing is created, and the model stays unchanged."
    """What stopping the job would do, as pages say before it is stopped."""


TRAINING = JobKind("Run", "Runs", reads_rows=True)
KINDS: dict[str, JobKind] = {
    MERGE: JobKind("Merge", "Merges", reads_rows=True),
    ARCHIVE: JobKind("Download", "Downloads", loads_models=False),
    PUSH: JobKind("Push to the hub", "Pushes to the hub", loads_models=False, pushes=True),
    BENCHMARK: JobKind(
        "Benchmark", "Benchmarks", fetches=True, stopped="Tasks that are done keep their results; the others get none."
    ),
    GGUF: JobKind("Conversion to GGUF", "Conversions to GGUF", loads_models=False),
    SERVE: JobKind(
        "Served model",
        "Served models",
        working="Loaded and responding.",
        stopped="Answers in progress are truncated; the chat stays.",
    ),
    WARM: JobKind(
        "Warm server",
        "Warm servers",
        working="Ready for runs of the same model and server settings.",
        stopped="A run that uses the server fails.",
    ),
}


def kind_of(kind: str) -> JobKind:
    """Return the kind of job for RunSpec.kind; TRAINING if the run isn't a job."""
    return KINDS.get(kind, TRAINING)


def ports_of(kind: str, job: dict[str, Any]) -> int:
    """Count the ports on which a job itself listens."""
    return int(kind == SERVE and bool(job.get("address")))


def is_gguf_name(name: str) -> bool:
    """Return whether a name is safe as a file name, which becomes part of a path."""
    return bool(_GGUF_NAME.fullmatch(name))


def is_benchmark_name(task: str) -> bool:
    """Return whether a name is safe as a task's name, which becomes part of a path."""
    return bool(_BENCHMARK_NAME.fullmatch(task))
