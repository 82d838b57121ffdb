"""A run without the control plane: the commands of its processes for people, and a shell script that runs them.

Standard library only, since pages generate these from a spec. The script does the supervisor's work: it starts each
server, waits until it responds, trains, and ends what it has started.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workers.contract.run.spec import AttemptSpec, ServerPlace, servers_of
from workers.contract.stack.commands import (
    Programs,
    devices,
    fetch_arguments,
    has_ranks,
    hub_models,
    own_servers,
    served_name,
    server_argv,
    server_environment,
    torchrun_arguments,
    trainer_argv,
    trainer_environment,
)

SCRIPT, ACCELERATE = "run.sh", "accelerate.yaml"
"""The two files' names; the folder also has spec.json and dataset.parquet."""
TRAINER_MODULE = ("-m", "workers.trainer")
STOP_S = 30
"""Seconds for a server to exit by itself; vLLM needs some to end its engine."""


@dataclass(frozen=True)
class PlannedProcess:
    """A process of an attempt, as the host starts it."""

    role: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    """The spec's part; the host adds allowed variables of its own."""


def processes(spec: AttemptSpec, programs: Programs, folder: str = ".") -> list[PlannedProcess]:
    """In starting order. Raises ContractError for a placement without a port for a server."""
    offline = {"HF_HUB_OFFLINE": "1"} if from_hub(spec) else {}
    servers = [
        PlannedProcess(
            place.role,
            tuple(server_argv(spec, place, programs)),
            {**server_environment(spec, place), **offline},
        )
        for place in own_servers(spec)
    ]
    argv = tuple(trainer_argv(folder, programs))
    trainer = [PlannedProcess("trainer", argv, {**trainer_environment(spec), **offline})]
    if has_ranks(spec):
        words = ("torchrun", *torchrun_arguments(spec.run.hardware.processes, folder))
        trainer.append(PlannedProcess("ranks, started by the trainer", words, {}))
    if not from_hub(spec):
        return [*servers, *trainer]
    fetch = PlannedProcess("download", (interpreter(programs), *_fetch_arguments(spec)), devices(()))
    return [fetch, *servers, *trainer]


def shell(process: PlannedProcess) -> str:
    """A process as a shell command, one line per option."""
    lines = [*_assignments(process.environment), shlex.quote(process.argv[0])]
    for word in process.argv[1:]:
        if word.startswith("--"):
            lines.append(shlex.quote(word))
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return " \\\n  ".join(lines)


def from_hub(spec: AttemptSpec) -> bool:
    """True if a model is a hub id, which is downloaded first."""
    return bool(hub_models(spec.run))


def interpreter(programs: Programs) -> str:
    """The trainer's Python; `python3` if the host uses a custom command."""
    return programs.trainer[0] if programs.trainer[1:] == TRAINER_MODULE else "python3"


def accelerate_yaml(spec: AttemptSpec) -> str:
    """The config for `accelerate launch`. Without DeepSpeed and FSDP: the trainer sets them up from the spec, so that
    they are the same however it was started."""
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
    """A bash script for a folder with spec.json, dataset.parquet and accelerate.yaml."""
    ready_s = spec.run.hardware.server.ready_timeout_s if spec.run.hardware.server else 0
    blocks = [_head(spec, programs), _FUNCTIONS if servers_of(spec) else _ENDING]
    if from_hub(spec):
        blocks.append(_fetching(spec))
    own_roles = {place.role for place in own_servers(spec)}
    blocks += [_starting(spec, place, programs) for place in servers_of(spec) if place.role in own_roles]
    waits = [
        f"ready {shlex.quote(place.address)} {shlex.quote(served_name(spec, place) if place.own else '')} "
        f'{ready_s} "{_variable(place) if place.own else ""}"'
        for place in servers_of(spec)
    ]
    if waits:
        blocks.append("\n".join(waits))
    return "\n".join([*blocks, _training(spec), _END])


def _head(spec: AttemptSpec, programs: Programs) -> str:
    name = " ".join(spec.run.name.split())
    gpus = sorted(spec.placement.every_gpu)
    uses = [f"GPU {', '.join(map(str, gpus))}"] if gpus else ["the CPU"]
    uses += [f"port {port}" for port in spec.placement.ports]
    return f"""#!/usr/bin/env bash
# Trains {_comment(name)} without the control plane, on {"; ".join(uses)}. README.txt says what it needs.
set -euo pipefail
cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")"

# The interpreter that has torch, trl and accelerate, and vllm where a server is started.
TRAINER_PYTHON=${{TRAINER_PYTHON:-}}
if [[ -z $TRAINER_PYTHON ]]; then
  TRAINER_PYTHON={shlex.quote(interpreter(programs))}
fi
export PYTHONUNBUFFERED=1 DO_NOT_TRACK=1 HF_HUB_DISABLE_TELEMETRY=1
if ! "$TRAINER_PYTHON" -c 'import workers.trainer' 2>/dev/null; then
  echo "run.sh: $TRAINER_PYTHON can't import workers.trainer." >&2
  echo "Put the project's folder on PYTHONPATH, and the trainer's interpreter into TRAINER_PYTHON." >&2
  exit 2
fi
mkdir -p logs
"""


_ENDING = f"""\
# Every process has a group of its own, named by its pid, so that all of it can be ended.
pids=()
# shellcheck disable=SC2317,SC2329  # called by the traps
finish() {{
  local status=$? pid deadline
  trap - EXIT INT TERM HUP
  for pid in "${{pids[@]}}"; do
    kill -TERM -- "-$pid" 2>/dev/null || true
  done
  deadline=$((SECONDS + {STOP_S}))
  for pid in "${{pids[@]}}"; do
    while kill -0 -- "-$pid" 2>/dev/null; do
      if ((SECONDS >= deadline)); then
        kill -KILL -- "-$pid" 2>/dev/null || true
        break
      fi
      sleep 0.2
    done
    wait "$pid" 2>/dev/null || true
  done
  exit "$status"
}}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
"""

_FUNCTIONS = (
    _ENDING
    + """
# answers ADDRESS NAME: the server is healthy, and serves NAME where one is given.
answers() {
  "$TRAINER_PYTHON" - "$1" "$2" 2>/dev/null <<'END'
import json, sys, urllib.request

address, name = sys.argv[1:]
ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
ask(address + "/health", timeout=5).read()
served = [model["id"] for model in json.load(ask(address + "/v1/models", timeout=5))["data"]]
sys.exit(0 if name in served or (served and not name) else 1)
END
}

# ready ADDRESS NAME SECONDS PID: waits for it, as long as its process lives.
ready() {
  local deadline=$((SECONDS + $3))
  until answers "$1" "$2"; do
    if [[ -n $4 ]] && ! kill -0 "$4" 2>/dev/null; then
      echo "run.sh: the server for $1 has ended before it answered; see logs/." >&2
      exit 1
    fi
    if ((SECONDS >= deadline)); then
      echo "run.sh: the server at $1 was not ready within $3 s; see logs/." >&2
      exit 1
    fi
    sleep 1
  done
  echo "run.sh: the server at $1 is ready."
}
"""
)

_END = """\
# Whoever ends first decides: a trainer would wait for a server that is gone for ever.
status=0
wait -n "${pids[@]}" || status=$?
if kill -0 "$trainer" 2>/dev/null; then
  echo "run.sh: a vLLM server has ended; see logs/." >&2
  exit 1
fi
exit "$status"
"""


def _fetching(spec: AttemptSpec) -> str:
    return f"""\
# The model, once; after this nothing asks the hub again. HF_TOKEN in your environment gives leave for gated ones.
{_wrapped_command('"$TRAINER_PYTHON"', *map(shlex.quote, _fetch_arguments(spec)))}
export HF_HUB_OFFLINE=1
unset HF_TOKEN
"""


def _fetch_arguments(spec: AttemptSpec) -> tuple[str, ...]:
    return "-m", "workers.trainer.fetch", *fetch_arguments(spec.run), "--progress", "download.jsonl"


def _starting(spec: AttemptSpec, place: ServerPlace, programs: Programs) -> str:
    own = interpreter(programs)
    argv = server_argv(spec, place, programs)
    # The user's interpreter for the trainer also serves the servers, if the host uses one for both.
    program = '"$TRAINER_PYTHON"' if argv[0] == own and argv[1:2] == ["-m"] else shlex.quote(argv[0])
    environment = server_environment(spec, place)
    if argv[1:2] == ["-m"]:
        environment["PYTHONSAFEPATH"] = "1"
    command = _wrapped_command("env", *_assignments(environment), program, *map(shlex.quote, argv[1:]))
    log = f"logs/{place.role}.log"
    return f"""\
echo "run.sh: starting {place.role} on port {place.port}; its log is {log}."
set -m
{command} \\
  </dev/null >{log} 2>&1 &
set +m
{_variable(place)[1:]}=$!
pids+=("{_variable(place)}")
"""


def _training(spec: AttemptSpec) -> str:
    environment = {**trainer_environment(spec), "PYTHONSAFEPATH": "1"}
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
# accelerate launch, by the trainer's own interpreter.
set -m
{command} </dev/null &
set +m
trainer=$!
pids+=("$trainer")
"""


def _variable(place: ServerPlace) -> str:
    """vllm-2 -> $vllm_2"""
    return "$" + place.role.replace("-", "_")


def _assignments(environment: Mapping[str, str]) -> Iterator[str]:
    return (f"{name}={shlex.quote(value)}" for name, value in sorted(environment.items()))


def _wrapped_command(*words: str) -> str:
    """One command on lines of readable length."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > 100:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n  ".join(lines)


def _comment(text: str) -> str:
    """Text that can't escape its comment."""
    return "".join(character for character in text if character.isprintable())
