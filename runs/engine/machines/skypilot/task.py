"""The task that SkyPilot runs: the machine, our GPU image, and the host's program in the image. The join code is a
secret of the task: SkyPilot sets it as an environment variable and shows it only to the token's owner and to SkyPilot's
admins. The task's first commands move it into a file."""

import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from runs.engine.machines.provider import EngineError, MachineShape

JOIN_CODE = "GRPO_JOIN_CODE"
HOOKS_SINCE = 62
"""API version of SkyPilot 0.14.1; older servers may not know `config.hooks`."""
SAVING_S = 240
"""Seconds for which the host's program may save after a stop, as in the stop_grace_period of compose.gpu.yaml."""

SPOT_WARNING_S = 120
"""Seconds of warning that AWS gives before it takes a spot machine back, the longest of all clouds."""
SPARE_S = 10
"""Seconds between the end of the host's program and the time when it would be killed."""

_RUN = """\
set -eu
umask 077
cd /app
printf %s "${join_code}" >/data/join-code
unset {join_code}
echo $$ >/data/host.pid
chown grpo:grpo /data /data/runs /data/models /data/join-code
exec setpriv --reuid=grpo --regid=grpo --clear-groups env {variables} \\
  timeout --signal=TERM --kill-after={saving}s {minutes}m {command}
"""

_STOP = """\
pid=$(cat /data/host.pid 2>/dev/null) || exit 0
kill -TERM "$pid" 2>/dev/null || exit 0
for _ in $(seq {saving}); do kill -0 "$pid" 2>/dev/null || exit 0; sleep 1; done
"""

_VARIABLES = {
    "HOME": "/data",
    "PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin",
    "HF_HOME": "/data/huggingface",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "CONTROLPLANE_BOOTSTRAP": "off",
    "GRPO_TRAINER_PYTHON": "/opt/trainer/bin/python",
    "GRPO_RUNS_DIR": "/data/runs",
}
"""Environment variables of gpu.Dockerfile, which SkyPilot's login shell drops."""


def render(
    shape: MachineShape, options: Mapping[str, str], *, control_url: str, name: str, join: str, hooks: bool
) -> dict[str, Any]:
    """Build the task for a machine. Raises EngineError for a shape that SkyPilot can't provide."""
    program = ["/opt/venv/bin/python", "-m", "workers.host.join", "--data", "/data", "--name", name]
    command = shlex.join([*program, "--code-file", "/data/join-code", control_url])
    notice_s = (SPOT_WARNING_S if options.get("spot") == "yes" else SAVING_S) - SPARE_S
    variables = {**_VARIABLES, "GRPO_STOP_NOTICE_S": str(notice_s), **shape.environment}
    run = _RUN.format(
        join_code=JOIN_CODE,
        variables=" ".join(f"{key}={shlex.quote(value)}" for key, value in variables.items()),
        saving=SAVING_S,
        minutes=shape.minutes,
        command=command,
    )
    return {
        "name": name,
        "num_nodes": 1,
        "resources": _resources(shape, options),
        "secrets": {JOIN_CODE: join},
        "config": _config(hooks=hooks),
        "run": run,
    }


def as_yaml(task: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(task), sort_keys=False)


def _resources(shape: MachineShape, options: Mapping[str, str]) -> dict[str, Any]:
    resources: dict[str, Any] = {
        # SkyPilot replaces the image's entry point: it installs ssh there and runs `run`.
        "image_id": f"docker:{options['image']}",
        "use_spot": options.get("spot") == "yes",
        # The machine ends with the host's program, even if people are logged in.
        "autostop": {"idle_minutes": 1, "down": True, "wait_for": "jobs"},
    }
    if infra := options.get("infra"):
        resources["infra"] = infra
    if disk := options.get("disk_gib"):
        resources["disk_size"] = int(disk)
    if price := options.get("most_usd"):
        resources["max_hourly_cost"] = float(price)
    if instance := options.get("instance_type"):
        return {**resources, "instance_type": instance}
    if shape.gpus and not shape.gpu_kind:
        raise EngineError("SkyPilot needs a GPU type, such as H100, or an instance type. Enter one in the source.")
    if shape.gpus:
        resources["accelerators"] = {shape.gpu_kind: shape.gpus}
    resources["cpus"] = f"{shape.cpus}+"
    if shape.memory_gib:
        resources["memory"] = f"{shape.memory_gib}+"
    return resources


def _config(*, hooks: bool) -> dict[str, Any]:
    """Build SkyPilot's settings. Only SkyPilot is root in the container, to install packages and an ssh key."""
    root = {"securityContext": {"runAsUser": 0, "runAsGroup": 0}}
    config: dict[str, Any] = {
        "docker": {"run_options": ["--user=0:0", "--env=HOME=/root", "--ulimit=memlock=-1"]},
        "kubernetes": {"pod_config": {"spec": {"containers": [root]}}},
    }
    if hooks:
        stop = _STOP.format(saving=SAVING_S)
        config["hooks"] = [{"run": stop, "events": ["down", "preemption"], "timeout": SAVING_S + 30}]
    return config
