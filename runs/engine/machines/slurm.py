"""Machines as Slurm jobs, managed by sbatch, squeue, sacct and scancel on the control worker's machine. A job's host
keeps its data in FOLDER/<name>, and all hosts of a source keep their runs in FOLDER/runs, on a file system that the
nodes and the control worker share. The join code is in a file there, with mode 0600."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.conf import settings

from runs.engine.machines.provider import (
    PRICE,
    EngineError,
    EngineKind,
    MachinePhase,
    MachineShape,
    MachineState,
    Option,
)

TIMEOUT_S = 15
"""Time limit of one command in seconds. If a busy controller exceeds it, the next poll tries again."""
PASSED_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "KRB5CCNAME", "SLURM_CONF")
"""The only variables that Slurm's commands and jobs get from the control worker's environment, which has secrets."""
ALLOWED_OPTIONS = (
    "comment", "cpus-per-gpu", "deadline", "exclude", "exclusive", "licenses", "mem-per-cpu", "mem-per-gpu", "nice",
    "nodelist", "prefer", "switches", "tmp", "use-min-nodes", "wckey",
)  # fmt: skip
ALLOWED_VARIABLES = r"(?:GRPO_|HF_|CUDA_|NCCL_|VLLM_|TORCH_|UV_|PIP_|OMP_)[A-Z0-9_]+|CONTROLPLANE_BOOTSTRAP|PATH|TMPDIR"
_EXTRA = rf"--(?:{'|'.join(ALLOWED_OPTIONS)})(?:=[^\s'\"\\`$;|&<>]+)?"
_VARIABLE = rf"(?:{ALLOWED_VARIABLES})=\S*"
_path = partial(
    Option, pattern=r"/(?!.*(?:^|/)\.\.(?:/|$))[A-Za-z0-9._/+@:=-]+", hint="an absolute path without spaces"
)
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.,@:+-]*"

PENDING_STATES = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
STARTING_STATES = {"CONFIGURING", "POWER_UP_NODE"}
END_REASONS = {
    "BOOT_FAIL": "its node could not boot",
    "CANCELLED": "it was cancelled",
    "COMPLETED": "the host's program ended",
    "DEADLINE": "its deadline passed",
    "FAILED": "the host's program failed",
    "LAUNCH_FAILED": "Slurm could not start it",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "it used more memory than it had requested",
    "PREEMPTED": "another job took its place",
    "RECONFIG_FAIL": "its node could not be set up",
    "REVOKED": "another cluster took it",
    "TIMEOUT": "its time was up",
}
TAKEN_BACK_STATES = {"CANCELLED", "DEADLINE", "PREEMPTED", "TIMEOUT"}
WAIT_REASONS = {
    "None": "",
    "Priority": "other jobs come first",
    "Resources": "waiting for free nodes",
}
MAX_OUTPUT = 300
NOTICE_VARIABLE = "GRPO_STOP_NOTICE_S"
NOTICE_SPARE_S = 10
"""Seconds between the end of the host's program and Slurm's kill, as in the --signal of grpo-host.sbatch."""


@dataclass(frozen=True)
class Slurm:
    control_url: str
    options: Mapping[str, str]

    def request(self, shape: MachineShape, *, name: str, join: str) -> str:
        folder = self._folder / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            code_file = folder / "code"
            # Before the job can start, and again if the first answer was lost.
            with open(os.open(code_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(join)
        except OSError as error:
            raise EngineError(f"The control worker can't write to {folder}: {error.strerror}.") from None
        if jobs := self._run("squeue", f"--name={name}", "--states=all", "--noheader", "--format=%i").split():
            return jobs[0]
        script = settings.BASE_DIR / "docker" / "slurm" / "grpo-host.sbatch"
        argv = ["sbatch", "--parsable", *self._options(shape, name), str(script), self.control_url, str(code_file)]
        output = self._run(*argv, variables=self._variables(shape, folder)).strip()
        job = output.partition(";")[0]
        if not job.isdigit():
            raise EngineError(f"sbatch printed {output[:MAX_OUTPUT]!r} instead of a job number.")
        return job

    def state(self, handle: str) -> MachineState:
        row = self._row(handle)
        if row is None:
            return self._describe_forgotten_job(handle)
        state, reason, node, name = row
        if state in PENDING_STATES:
            return MachineState(
                MachinePhase.QUEUED,
                f"Job {handle} is in Slurm's queue: {WAIT_REASONS.get(reason, reason)}.".replace(": .", "."),
            )
        if state in STARTING_STATES:
            return MachineState(MachinePhase.STARTING, f"Job {handle} is waiting for {node or 'its node'} to be ready.")
        if state in END_REASONS:
            return self._describe_end(handle, state, name)
        return MachineState(MachinePhase.RUNNING, f"Job {handle} is running on {node or 'its node'}.")

    def release(self, handle: str) -> None:
        row = self._row(handle)
        if row is None or row[0] in END_REASONS:
            return
        if row[0] in PENDING_STATES:
            self._run("scancel", handle)
        else:
            # Only to the batch script: supervisors must learn from the host's program why they are being ended.
            self._run("scancel", "--batch", "--signal=TERM", handle)

    @property
    def _folder(self) -> Path:
        return Path(self.options["folder"])

    def _options(self, shape: MachineShape, name: str) -> list[str]:
        get = self.options.get
        kind = f":{shape.gpu_kind}" if shape.gpu_kind else ""
        notice = _variables_of(self.options).get(NOTICE_VARIABLE)
        values = {
            "job-name": name,
            "chdir": self._source,
            "output": str(self._folder / name / "job.log"),
            "time": str(shape.minutes),
            "cpus-per-task": str(shape.cpus),
            "gres": get("gres") or (f"gpu{kind}:{shape.gpus}" if shape.gpus else "none"),
            "mem": f"{shape.memory_gib}G" if shape.memory_gib else "",
            "signal": f"B:TERM@{int(notice) + NOTICE_SPARE_S}" if notice else "",
            **{option: get(option, "") for option in ("partition", "account", "qos", "reservation", "constraint")},
        }
        # A machine that is taken back is requested again under another name.
        return [
            *(f"--{option}={text}" for option, text in values.items() if text),
            "--no-requeue",
            *get("extra", "").split(),
        ]

    def _variables(self, shape: MachineShape, folder: Path) -> dict[str, str]:
        flags = ["--plaintext"] if self.options.get("plaintext") else []
        if self.options.get("ca_file"):
            flags += ["--ca-file", self.options["ca_file"]]
        fixed_variables = {
            "GRPO_SOURCE": self._source,
            "GRPO_HOST_DATA": str(folder),
            "GRPO_RUNS_DIR": str(self._folder / "runs"),
            "GRPO_JOIN_FLAGS": " ".join(flags),
        }
        return {**shape.environment, **_variables_of(self.options), **fixed_variables}

    @property
    def _source(self) -> str:
        return self.options.get("source") or str(settings.BASE_DIR)

    def _row(self, handle: str) -> tuple[str, str, str, str] | None:
        """Look up the state, reason, node and name of a job; return None if the controller has forgotten it."""
        columns = "--format=%T|%r|%N|%j"
        try:
            output = self._run("squeue", f"--jobs={handle}", "--states=all", "--noheader", columns).strip()
        except EngineError as error:
            if "Invalid job id" in str(error):
                return None
            raise
        if not output:
            return None
        state, reason, node, name = [*output.splitlines()[0].split("|"), "", "", ""][:4]
        return state, reason, node, name

    def _describe_forgotten_job(self, handle: str) -> MachineState:
        """Describe the end of a job that the controller has forgotten, with its last state if there is accounting. The
        controller forgets a job only minutes after its end."""
        columns = "--format=State,JobName%64"
        try:
            output = self._run("sacct", f"--jobs={handle}", "--allocations", "--noheader", "--parsable2", columns)
        except EngineError:
            output = ""
        state, _, name = output.partition("|")
        state = state.split(" ")[0].strip()  # CANCELLED by 1000
        if state not in END_REASONS:
            return MachineState(MachinePhase.ENDED, f"Slurm no longer knows job {handle}, so it has ended.")
        return self._describe_end(handle, state, name.partition("|")[0].strip())

    def _describe_end(self, handle: str, state: str, name: str) -> MachineState:
        sentence = f"Job {handle} ended: {END_REASONS[state]}."
        log_end = self._log_end(name) if state in ("COMPLETED", "FAILED", "LAUNCH_FAILED") else ""
        return MachineState(MachinePhase.ENDED, f"{sentence}{log_end}", taken_back=state in TAKEN_BACK_STATES)

    def _log_end(self, name: str) -> str:
        if not re.fullmatch(_NAME, name):
            return ""
        try:
            with (self._folder / name / "job.log").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f" Last line of its log: {last_line[:MAX_OUTPUT]}" if last_line else ""

    def _run(self, *argv: str, variables: Mapping[str, str] | None = None) -> str:
        """Run a command and return its output. Raises EngineError if it can't be run, fails or takes too long."""
        passed_variables = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        try:
            result = subprocess.run(
                argv,
                env={**passed_variables, **(variables or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError:
            raise EngineError(f"{argv[0]} is not installed on the control worker's machine.") from None
        except subprocess.TimeoutExpired:
            raise EngineError(f"{argv[0]} didn't respond within {TIMEOUT_S} s.") from None
        except OSError as error:
            raise EngineError(f"{argv[0]} could not be run: {error.strerror}.") from None
        if result.returncode:
            message = " ".join((result.stderr or result.stdout).split())[:MAX_OUTPUT]
            raise EngineError(f"{argv[0]} failed: {message or f'exit code {result.returncode}'}")
        return result.stdout


def _variables_of(options: Mapping[str, str]) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in options.get("environment", "").split())


def _check(options: Mapping[str, str]) -> dict[str, str]:
    notice = _variables_of(options).get(NOTICE_VARIABLE, "230")
    if re.fullmatch(r"[1-9]\d{0,4}", notice):
        return {}
    return {"environment": f"{NOTICE_VARIABLE} must be a whole number of seconds from 1 to 99,999, not {notice!r}."}


KIND = EngineKind(
    name="slurm",
    label="Slurm",
    help="Each machine is a Slurm job. sbatch, squeue and scancel must work on the control worker's machine, which "
    "must share a file system with the nodes.",
    options=(
        _path(
            "folder",
            "Shared folder",
            "Folder for the hosts' data and runs, at the same path on the nodes and on the control worker's machine.",
            required=True,
        ),
        _path(
            "source", "Source code", "Its path on the nodes. Leave empty for the control plane's own path.", rare=True
        ),
        Option("partition", "Partition", "Leave empty for the cluster's default.", _NAME, "the name of a partition"),
        Option("account", "Account", "Account to charge.", _NAME, "the name of an account"),
        Option("qos", "QOS", "Quality of service.", _NAME, "the name of a QOS"),
        Option("reservation", "Reservation", "", _NAME, "the name of a reservation", rare=True),
        Option(
            "constraint",
            "Constraint",
            "Features that a node must have, such as h100&nvlink.",
            r"[A-Za-z0-9_\[(][A-Za-z0-9_.,&|*()\[\]!-]*",
            "features joined by & or |",
            rare=True,
        ),
        Option(
            "gres",
            "Generic resources",
            "Replaces gpu:KIND:COUNT if the cluster names its GPUs differently.",
            r"[A-Za-z0-9_][A-Za-z0-9_.:,-]*",
            "names and counts such as gpu:h100:4",
            rare=True,
        ),
        Option(
            "extra",
            "Other sbatch options",
            f"Separated by spaces. Allowed: {', '.join(ALLOWED_OPTIONS)}.",
            rf"{_EXTRA}(?: {_EXTRA})*",
            "allowed options, such as --exclude=gpu07 --nice=100",
            max_length=500,
            rare=True,
        ),
        Option(
            "environment",
            "Environment variables of the host",
            "Separated by spaces, such as GRPO_MODEL_ROOTS=/shared/models HF_HOME=/shared/hf.",
            rf"{_VARIABLE}(?: {_VARIABLE})*",
            "NAME=value, where names begin with GRPO_, HF_, CUDA_, NCCL_, VLLM_, TORCH_, UV_, PIP_ or OMP_, or "
            "are PATH, TMPDIR or CONTROLPLANE_BOOTSTRAP",
            max_length=2000,
            rare=True,
        ),
        PRICE,
        _path(
            "ca_file",
            "CA certificates",
            "Path of a PEM file on the nodes, if no public authority issued the control plane's certificate.",
            rare=True,
        ),
        Option(
            "plaintext",
            "Encryption",
            "Without encryption, hosts use http:// and redis://. Choose that only on a private network.",
            "yes",
            "required or none",
            choices={"": "required", "yes": "none"},
            rare=True,
        ),
    ),
    make=Slurm,
    check=_check,
    shares_runs=True,
)
