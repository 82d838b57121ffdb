"""Logs with their causes: real programs' own in logs/, provoked; others in documented.toml, cores.toml, rare.toml and
printed.toml; healthy ones and innocent lines, which have none."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
FILES = {"core": "cores.toml", "rare": "rare.toml", "printed": "printed.toml"}


@dataclass(frozen=True)
class Case:
    name: str
    expect: str
    origin: str
    role: str
    text: str


def provoked() -> list[Case]:
    cases = []
    for path in sorted((HERE / "logs").iterdir()):
        head, _, text = path.read_text(encoding="utf-8").partition("\n\n")
        fields = dict(line.removeprefix("## ").partition(": ")[::2] for line in head.splitlines())
        cases.append(Case(path.stem, fields["expect"], fields["origin"], fields.get("role", ""), text))
    return cases


def documented() -> list[Case]:
    rows = tomllib.loads((HERE / "documented.toml").read_text(encoding="utf-8"))["log"]
    return [
        Case(f"{row['expect']}-{number}", row["expect"], "documentation", row.get("role", ""), row["text"])
        for number, row in enumerate(rows)
    ]


def cores() -> list[Case]:
    return [
        Case(f"{expect}-{name}-{number}", expect, "written", "", text)
        for name in FILES
        for expect, texts in tomllib.loads((HERE / FILES[name]).read_text(encoding="utf-8")).items()
        for number, text in enumerate(texts)
    ]


CASES = provoked() + documented() + cores()

STYLES = {
    "ranks": lambda line: f"[rank3]: {line}",
    "times": lambda line: f"[2026-11-23 10:11:12,345] {line}",
    "vLLM": lambda line: f"(EngineCore_DP0 pid=123) ERROR 11-23 10:11:12 [core.py:712] {line}",
    "vLLM's workers": lambda line: f"(VllmWorker rank=7 pid=4711) ERROR 11-23 10:11:12 [v1/executor/exec.py:5] {line}",
    "Ray": lambda line: f"(TaskRunner pid=4711, ip=10.0.0.2) {line}",
    "Kubernetes": lambda line: f"2026-11-23T10:11:12.123456789Z stderr F {line}",
    "syslog": lambda line: f"Nov 23 10:11:12 node7 python[4711]: {line}",
    "srun": lambda line: f"3: {line}",
    "colours": lambda line: f"\x1b[1;31m{line}\x1b[0m",
    "compose": lambda line: f"trainer-1  | {line}",
    "progress bar": lambda line: f" 12%|█▏        | 3/25 [00:10<01:00]\r{line}",
    "Windows": lambda line: f"{line}\r",
}
"""How other programs write the same lines."""

FIGURES = (
    "{{'loss': 0.0{n}, 'grad_norm': 0.5, 'learning_rate': 1e-06, 'num_tokens': {n}.0, 'completions/mean_length': 210, "
    "'rewards/right/failed': 0, 'reward': 0.4, 'reward_std': 0.2, 'kl': 0.01, 'epoch': 0.{n}}}\n"
)
BAR = " {n}%|█▏        | {n}/100 [0{n}:10<51:00, 19.95s/it]"
STARTING = """\
/site/torch/cuda/__init__.py:61: FutureWarning: The pynvml package is deprecated.
WARNING 11-23 10:11:12 [interface.py:521] Using 'pin_memory=False' as WSL is detected. This may be slower.
INFO 11-23 10:11:12 [__init__.py:241] Automatically detected platform cuda.
(APIServer pid=71) INFO 11-23 10:11:12 [utils.py:233] non-default args: {'model': 'm', 'max_model_len': 4096}
[W1123 10:11:12.101 socket.cpp:767] [c10d] The client socket has failed to connect to [::]:29500 (errno: 97 - x).
huggingface/tokenizers: The current process just got forked, after parallelism has already been used.
Loading checkpoint shards: 100%|██████████| 4/4 [00:03<00:00,  1.20it/s]
`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.
The tokenizer has new PAD/BOS/EOS tokens that differ from the model config and generation config.
wandb: Tracking run with wandb version 0.22.0
WARNING 11-23 10:11:13 [logger.py:22] Triton is not installed, using dummy decorators.
Warmup: the following errors are expected and handled: none.
"""
ENDING = """\
[rank0]:[W1123 10:12:12.501 ProcessGroupNCCL.cpp:1538] Warning: destroy_process_group() was not called before exit.
W1123 10:12:13.000000 551 torch/distributed/elastic/api.py:900] Sending process 560 closing signal SIGTERM
E1123 10:12:14.000000 551 torch/distributed/elastic/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 561)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: There appear to be 1 leaked semaphore objects
"""
OTHERS = (
    "(WorkerDict pid=9) INFO:2026-11-23 10:11:12,345:update of the actor took 3.4 s",
    "[rank1]: /site/torch/utils.py:9: UserWarning: something that is not an error is deprecated",
    'INFO:     127.0.0.1:40112 - "GET /health HTTP/1.1" 200 OK',
)
"""Lines of other workers."""


def styled(text: str, style: str) -> str:
    write = STYLES[style]
    return "\n".join(write(line) if line.strip() else line for line in text.splitlines())


def while_training(text: str) -> str:
    """The error comes in the middle of training, and the bar is drawn again as the program ends."""
    steps = "".join(BAR.format(n=n) + "\r" + " " * 60 + "\r" + FIGURES.format(n=n) for n in (3, 4, 5))
    return f"{steps}{BAR.format(n=5)}{text.lstrip()}\n{BAR.format(n=5)}\n{ENDING}"


def among_others(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(part for number, line in enumerate(lines) for part in (line, OTHERS[number % len(OTHERS)]))


def under_an_own_prefix(text: str) -> str:
    """A prefix that no known program writes."""
    return "\n".join(
        f"job 7 > gpu{n % 4} > {line}"
        for n, line in enumerate(["Traceback (most recent call last):", *text.splitlines()])
    )


NOISES: dict[str, Callable[[str], str]] = {
    **{style: partial(styled, style=style) for style in STYLES},
    "in training": while_training,
    "among other workers": among_others,
    "an unknown prefix": under_an_own_prefix,
    "after a long start": lambda text: STARTING * 20 + text + "\n" + ENDING,
    "cut at both ends": lambda text: f'site/torch/_ops.py", line 1158, in __call__\n{text}\n{ENDING[:-60]}',
}
"""What real logs have around the lines of an error."""


def innocent() -> list[str]:
    """Lines of warnings, handled errors and models' texts, none of which is a cause."""
    return [line for line in (HERE / "innocent.txt").read_text(encoding="utf-8").splitlines() if line[:2] != "# "]


def healthy() -> dict[str, str]:
    """Logs of runs that work, though they speak of errors."""
    return dict(tomllib.loads((HERE / "healthy.toml").read_text(encoding="utf-8")))
