"""A run without the control plane: the commands of its processes for people, and a shell script that runs them.

Standard library only, since pages generate these from a spec. The script does the supervisor's work: it starts each
server, waits until it responds, trains, and stops what it has started.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.contract.run.spec import AttemptSpec, ServerPlace, servers_of
from workers.contract.stack import commands
from workers.contract.stack.commands import Programs

SCRIPT, ACCELERATE = "run.sh", "accelerate.yaml"
"""Names of the two generated files; the folder also has spec.json and dataset.parquet."""
TRAINER_MODULE = ("-m", "workers.trainer")
_SCRIPT = Path(__file__).with_name("dry_run.sh")
"""Template of the script, with placeholders such as @steps@ for what depends on the spec."""
_WAITING_FUNCTIONS = Path(__file__).with_name("dry_run_servers.sh")


@dataclass(frozen=True)
class PlannedProcess:
    """A process of an attempt, as the host starts it."""

    role: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    """Variables that follow from the spec; the host adds its own variables where they are allowed."""


def processes(spec: AttemptSpec, programs: Programs, folder: str = ".") -> list[PlannedProcess]:
    """List the processes in starting order. Raises ContractError for a placement without a port for a server."""
    offline = {"HF_HUB_OFFLINE": "1"} if from_hub(spec) else {}
    servers = [
        PlannedProcess(
            endpoint.role,
            tuple(commands.server_argv(spec, endpoint, programs)),
            {**commands.server_environment(spec, endpoint), **offline},
        )
        for endpoint in commands.own_servers(spec)
    ]
    argv = tuple(commands.trainer_argv(folder, programs))
    trainer = [PlannedProcess("trainer", argv, {**commands.trainer_environment(spec), **offline})]
    if commands.has_ranks(spec):
        argv = ("torchrun", *commands.torchrun_arguments(spec.run.hardware.processes, folder))
        trainer.append(PlannedProcess("ranks, started by the trainer", argv, {}))
    if not from_hub(spec):
        return [*servers, *trainer]
    fetch = PlannedProcess("download", (interpreter(programs), *_fetch_arguments(spec)), commands.devices(()))
    return [fetch, *servers, *trainer]


def shell(process: PlannedProcess) -> str:
    """Format a process as a shell command, with one option per line."""
    lines = [*_assignments(process.environment), shlex.quote(process.argv[0])]
    for argument in process.argv[1:]:
        if argument.startswith("--"):
            lines.append(shlex.quote(argument))
        else:
            lines[-1] += f" {shlex.quote(argument)}"
    return " \\\n  ".join(lines)


def from_hub(spec: AttemptSpec) -> bool:
    """Return whether any of the run's models is a hub id and must therefore be downloaded first."""
    return bool(commands.hub_models(spec.run))


def interpreter(programs: Programs) -> str:
    """Return the trainer's Python; `python3` if the host uses a custom command."""
    return programs.trainer[0] if programs.trainer[1:] == TRAINER_MODULE else "python3"


def accelerate_yaml(spec: AttemptSpec) -> str:
    """Build the config for `accelerate launch`, without DeepSpeed and FSDP: the trainer configures these from the spec,
    so that they are the same however it was started."""
    hardware = spec.run.hardware
    kind = "NO" if hardware.processes == 1 else "MULTI_GPU" if hardware.trainer_gpus else "MULTI_CPU"
    values: dict[str, str | int] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": "false",
        "distributed_type": f"'{kind}'",
        "enable_cpu_affinity": "false",
        "machine_rank": 0,
        "main_process_port": 0,  # any free one
        "main_training_function": "main",
        "mixed_precision": "'no'",  # set by the trainer's own arguments
        "num_machines": 1,
        "num_processes": hardware.processes,
        "rdzv_backend": "static",
        "same_network": "true",
        "use_cpu": "false" if hardware.trainer_gpus else "true",
    }
    return "".join(f"{name}: {value}\n" for name, value in values.items())


def script(spec: AttemptSpec, programs: Programs) -> str:
    """Build the bash script for a folder with spec.json, dataset.parquet and accelerate.yaml."""
    ready_s = spec.run.hardware.server.ready_timeout_s if spec.run.hardware.server else 0
    steps = [_download_step(spec)] if from_hub(spec) else []
    steps += [_server_step(spec, endpoint, programs) for endpoint in commands.own_servers(spec)]
    waits = []
    for endpoint in servers_of(spec):
        name, pid = (commands.served_name(spec, endpoint), _variable(endpoint)) if endpoint.own else ("", "")
        waits.append(f'ready {shlex.quote(endpoint.address)} {shlex.quote(name)} {ready_s} "{pid}"')
    steps += ["\n".join(waits)] if waits else []
    gpus = sorted(spec.placement.every_gpu)
    uses = [f"GPU {', '.join(map(str, gpus))}"] if gpus else ["the CPU"]
    parts = {
        # Without characters that could end the comment around it.
        "name": "".join(filter(str.isprintable, " ".join(spec.run.name.split()))),
        "uses": "; ".join([*uses, *(f"port {port}" for port in spec.placement.ports)]),
        "interpreter": shlex.quote(interpreter(programs)),
        "functions": _WAITING_FUNCTIONS.read_text() if waits else "",
        "steps": "\n".join([*steps, _training_step(spec)]),
    }
    return re.sub("@([a-z]+)@", lambda mark: parts[mark[1]], _SCRIPT.read_text())


def _download_step(spec: AttemptSpec) -> str:
    return f"""\
# Download the model; nothing contacts the hub after this. HF_TOKEN in your environment gives access to gated models.
{_wrapped_command('"$TRAINER_PYTHON"', *map(shlex.quote, _fetch_arguments(spec)))}
export HF_HUB_OFFLINE=1
unset HF_TOKEN
"""


def _fetch_arguments(spec: AttemptSpec) -> tuple[str, ...]:
    return "-m", "workers.trainer.fetch", *commands.fetch_arguments(spec.run), "--progress", "download.jsonl"


def _server_step(spec: AttemptSpec, endpoint: ServerPlace, programs: Programs) -> str:
    trainer_python = interpreter(programs)
    argv = commands.server_argv(spec, endpoint, programs)
    # The user's interpreter for the trainer also runs the servers if the host uses one for both.
    program = '"$TRAINER_PYTHON"' if argv[0] == trainer_python and argv[1:2] == ["-m"] else shlex.quote(argv[0])
    environment = commands.server_environment(spec, endpoint)
    if argv[1:2] == ["-m"]:
        environment["PYTHONSAFEPATH"] = "1"
    command = _wrapped_command("env", *_assignments(environment), program, *map(shlex.quote, argv[1:]))
    log = f"logs/{endpoint.role}.log"
    return f"""\
echo "run.sh: starting {endpoint.role} on port {endpoint.port}; its log is {log}."
set -m
{command} \\
  </dev/null >{log} 2>&1 &
set +m
{_variable(endpoint)[1:]}=$!
pids+=("{_variable(endpoint)}")
"""


def _training_step(spec: AttemptSpec) -> str:
    environment = {**commands.trainer_environment(spec), "PYTHONSAFEPATH": "1"}
    threads = spec.run.hardware.threads
    command = _wrapped_command(
        "env",
        *_assignments(environment),
        '"$TRAINER_PYTHON"',
        *("-m", "accelerate.commands.launch", "--config_file", ACCELERATE),
        *(("--num_cpu_threads_per_process", str(threads)) if threads else ()),
        *TRAINER_MODULE,
        '"$PWD"',
    )
    return f"""\
# Run accelerate launch with the trainer's own interpreter.
set -m
{command} </dev/null &
set +m
trainer=$!
pids+=("$trainer")
"""


def _variable(endpoint: ServerPlace) -> str:
    return "$" + endpoint.role.replace("-", "_")


def _assignments(environment: Mapping[str, str]) -> Iterator[str]:
    return (f"{name}={shlex.quote(value)}" for name, value in sorted(environment.items()))


def _wrapped_command(*arguments: str) -> str:
    lines = [""]
    for argument in arguments:
        if lines[-1] and len(lines[-1]) + len(argument) > 100:
            lines.append("")
        lines[-1] += f" {argument}" if lines[-1] else argument
    return " \\\n  ".join(lines)
