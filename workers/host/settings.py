"""A host's settings: who it is, where its folders are, which programs it starts, and every deadline.

Deadlines are settings so that tests can scale them. The launcher hands them to the supervisor through the
environment (`as_env`), and nothing else of the worker's environment that could hold a secret.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class SettingsError(ValueError):
    """The environment doesn't describe a host; the message names the variable."""


@dataclass(frozen=True)
class HostSettings:
    """Each field is the environment variable GRPO_<FIELD IN CAPITALS>; empty or absent means the default."""

    runs_dir: Path
    control_url: str
    host_name: str = ""
    host_token_file: Path | None = None

    trainer_python: str = sys.executable
    trainer_pythonpath: str = ""
    trainer_command: tuple[str, ...] = ()
    """Argument list in place of `trainer_python -m workers.trainer` (tests)."""
    supervisor_command: tuple[str, ...] = (sys.executable, "-m", "workers.supervisor")
    vllm_command: tuple[str, ...] = ()
    """Argument list before `serve`; default: trainer_python -m vllm.entrypoints.cli.main."""

    fetch_command: tuple[str, ...] = ()
    """Argument list before the model's name; default: trainer_python -m workers.trainer.fetch."""

    model_roots: tuple[Path, ...] = ()
    """Folders that local model paths must lie in; the data folder's models/ is always one where there is one."""
    hf_token_file: Path | None = None
    """Holds this host's token for the model hub, mode 0600; read for each question to the hub and each download, and
    given to nothing else."""
    dataset_cache_dir: Path | None = None
    """Where datasets lie that runs have used, by their checksum; default: dataset-cache beside runs_dir."""
    dataset_cache_mib: int = 20_480
    """Of them, so much is kept: those used longest ago go first. 0: none."""
    cpu_slots: int = 0
    """Runs on the CPU at a time; 0: half the cores."""
    port_range: tuple[int, int] = (21000, 21999)
    """Ports for vLLM servers, below the kernel's own ephemeral range."""

    announce_s: float = 10.0
    announce_watched_s: float = 2.0
    """While somebody looks at the host's figures."""
    http_timeout_s: float = 10.0
    lock_wait_s: float = 5.0
    """How long the launcher waits for the supervisor's lock."""
    claim_deadline_s: float = 600.0
    dataset_deadline_s: float = 900.0
    download_silence_s: float = 900.0
    """A download that says nothing for so long hangs. It ends by itself much earlier when no bytes come."""
    tick_s: float = 0.05
    tick_watched_s: float = 0.02
    tree_scan_s: float = 1.0
    sample_s: float = 2.0
    heartbeat_s: float = 2.0
    batch_s: float = 1.0
    """How long lines are gathered while nobody watches the run."""
    batch_watched_s: float = 0.1
    backoff_max_s: float = 15.0
    log_batch_s: float = 10.0
    log_batch_watched_s: float = 0.5
    log_cap_bytes: int = 50_000_000
    """Of each log, this much of the head and of the tail is sent."""
    log_live_bytes: int = 50_000_000
    """Of each log, so much may be sent between head and tail while somebody watches."""
    save_deadline_s: float = 120.0
    term_grace_s: float = 0.0
    """Between SIGTERM and SIGKILL. SIGTERM never saves, so nothing is gained by waiting."""
    kill_deadline_s: float = 30.0
    """A process that survives SIGKILL for so long is reported as a survivor."""
    gpu_free_deadline_s: float = 15.0
    gpu_free_margin_mib: int = 300
    gpu_busy_mib: int = 1024
    """A leased GPU with more than this in use before the start belongs to somebody else."""
    settle_s: float = 1.0
    """After a trainer's failure, how long a dying vLLM server has to show that it was the cause."""
    attached_watch_s: float = 2.0
    """Between two questions to a vLLM server that is ready whether it still answers."""
    attached_silence_s: float = 60.0
    """One that somebody else runs and that doesn't answer for so long is taken for gone."""
    server_silence_s: float = 600.0
    """A vLLM server that is asked for so long and makes no token, or answers nothing, hangs; unless the trainer goes
    on. Long: the first request to a cold server compiles kernels for minutes."""
    stall_s: float = 900.0
    """No training step for so long, or for ten times as long as a step takes as a rule, is told."""
    drain_deadline_s: float = 86_400.0
    """After the end, how long the supervisor tries to hand over what the control plane has not confirmed. What is
    left then is the reaper's to upload."""
    refused_deadline_s: float = 60.0
    """After the end, how long a control plane that knows nothing of the attempt is asked again."""

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> HostSettings:
        source = os.environ if env is None else env
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = _embedded_layout(source)
        for field in dataclasses.fields(cls):
            text = source.get(variable(field.name), "")
            if text:
                values[field.name] = _decode(hints[field.name], text, variable(field.name))
        embedded_roots = _embedded_layout(source).get("model_roots", ())
        if embedded_roots:
            values["model_roots"] = tuple(dict.fromkeys((*embedded_roots, *values["model_roots"])))
        for name in ("runs_dir", "control_url"):
            if name not in values:
                raise SettingsError(f"{variable(name)} is not set: a host cannot work without it")
        if not values["runs_dir"].is_absolute():
            raise SettingsError(f"{variable('runs_dir')} must be an absolute path")
        for name in ("hf_token_file", "dataset_cache_dir"):  # for the supervisor, with a working directory of its own
            if name in values:
                values[name] = values[name].absolute()
        return cls(**values)

    def as_env(self) -> dict[str, str]:
        """The same settings for a supervisor, without the host's own token."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "host_token_file"}
        return {variable(name): _encode(value) for name, value in values.items() if value not in (None, "", ())}

    @property
    def name(self) -> str:
        return self.host_name or socket.gethostname()

    @property
    def slots(self) -> int:
        return self.cpu_slots or max(1, (os.cpu_count() or 1) // 2)

    @property
    def dataset_cache_folder(self) -> Path:
        return self.dataset_cache_dir or self.runs_dir.parent / "dataset-cache"

    @property
    def control_url_file(self) -> Path:
        """Written at each start of the host's worker, so that supervisors follow a control plane that moved."""
        return self.runs_dir / "control_url"

    def host_token(self) -> str:
        if self.host_token_file is None:
            raise SettingsError(f"{variable('host_token_file')} is not set: the control plane would not know this host")
        return self.host_token_file.read_text().strip()


def variable(field_name: str) -> str:
    return f"GRPO_{field_name.upper()}"


def _embedded_layout(source: Mapping[str, str]) -> dict[str, Any]:
    """Where things are when the control plane and this host share one data folder."""
    data = source.get("CONTROLPLANE_DATA", "")
    if not data:
        return {}
    root = Path(data).absolute()
    return {"runs_dir": root / "runs", "host_token_file": root / "host_token", "model_roots": (root / "models",)}


def _decode(hint: Any, text: str, name: str) -> Any:
    try:
        if hint in (float, int, str):
            return hint(text)
        if hint == tuple[str, ...]:
            return tuple(str(part) for part in json.loads(text))
        if hint == tuple[Path, ...]:
            return tuple(Path(part).absolute() for part in text.split(os.pathsep) if part)
        if hint == tuple[int, int]:
            first, last = text.split("-")
            return int(first), int(last)
        return Path(text)
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{name}: {text!r} is no valid value ({error})") from None


def _encode(value: Any) -> str:
    if isinstance(value, tuple):
        if all(isinstance(part, int) for part in value):
            return "-".join(str(part) for part in value)
        if all(isinstance(part, Path) for part in value):
            return os.pathsep.join(str(part) for part in value)
        return json.dumps(value)
    return str(value)
