"""A host's settings: its name, folders and programs, and all deadlines.

Deadlines are settings so that tests can scale them. The launcher passes the settings to the supervisor as environment
variables (`as_env`), without any of the worker's own variables that could contain a secret.
"""

import dataclasses
import json
import os
import re
import socket
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from workers.contract.wire.names import EndReason


class SettingsError(ValueError):
    """Error for an invalid environment of a host; the message names the variable."""


class AtStop(StrEnum):
    """Treatment of a host's runs when the host's program stops."""

    LEAVE = "leave"
    """Runs keep training; the host finds them at its next start."""
    END = "end"
    SAVE = "save"


class StopReason(StrEnum):
    """End reason of runs that end because the host's program stops."""

    HOST_SHUTDOWN = EndReason.HOST_SHUTDOWN
    HOST_PREEMPTED = EndReason.HOST_PREEMPTED
    """The cluster takes the machine back, for another job or because its time is up."""


@dataclass(frozen=True)
class HostSettings:
    """The settings of one host, each read from the environment variable GRPO_<FIELD IN CAPITALS>. An empty or absent
    variable means the default."""

    runs_dir: Path
    control_url: str
    host_name: str = ""
    host_token_file: Path | None = None
    ca_file: Path | None = None
    """Certificates (PEM) of the control plane's authority, if that isn't a public one."""

    trainer_python: str = sys.executable
    trainer_pythonpath: str = ""
    trainer_command: tuple[str, ...] = ()
    """Argument list that replaces `trainer_python -m workers.trainer`, for tests."""
    supervisor_command: tuple[str, ...] = (sys.executable, "-m", "workers.supervisor")
    vllm_command: tuple[str, ...] = ()
    """Argument list before `serve`, by default trainer_python -m workers.trainer.vllm, vLLM's own command line."""
    fetch_command: tuple[str, ...] = ()
    """Argument list before the model's name, by default trainer_python -m workers.trainer.fetch."""

    lm_eval_python: str = ""
    """Interpreter with lm-eval; "" means .venv-lm-eval next to the source, which the first benchmark builds."""
    atropos_python: str = ""
    """Interpreter with atroposlib; "" means .venv-atropos next to the source, which the first run that needs it
    builds."""
    sinks_python: str = ""
    """Interpreter with TensorBoard, wandb, trackio and MLflow; "" means .venv-sinks next to the source, which the first
    run with sinks builds."""
    sinks_command: tuple[str, ...] = ()
    lm_eval_tasks: Path | None = None

    environments_python: str = ""
    """Interpreter with reasoning-gym, TextArena and OpenEnv; "" means .venv-environments next to the source, which the
    first run that needs it builds."""

    llama_cpp_dir: Path | None = None
    """Checkout of llama.cpp, whose script converts models to GGUF; None if this host converts none."""

    at_stop: AtStop = AtStop.LEAVE
    """Treatment of runs when the host's program stops; a container needs `end` or `save`, as it ends all processes."""
    stop_reason: StopReason = StopReason.HOST_SHUTDOWN
    stop_notice_s: float = 0.0
    """Seconds from SIGTERM to the host's program until everything on the host is killed; 0 if unknown. The time that
    remains after saving is used for uploads to the artifact store."""
    leave_after_s: float = 0.0
    """Seconds without a run after which a lent machine leaves the control plane permanently, as it does when its
    program stops; 0 if it never leaves."""
    gpus: str = ""
    """Indexes of the GPUs that runs may use, separated by commas; "" for all that the driver reports."""

    model_roots: tuple[Path, ...] = ()
    """Folders that may contain local models; the data folder's models/ is always included if it exists."""
    hf_token_file: Path | None = None
    """File with this host's token for the model hub, mode 0600. It is read for each inspection and download, and passed
    to nothing else."""
    dataset_cache_dir: Path | None = None
    """Cache of datasets, by checksum; by default dataset-cache next to runs_dir."""
    dataset_cache_mib: int = 20_480
    """Size limit of the dataset cache, which removes the least recently used datasets first; 0 for no cache."""
    compile_cache_dir: Path | None = None
    """Cache of kernels that vLLM, torch and Triton compile; by default compile-cache next to runs_dir."""
    compile_cache_mib: int = 20_480
    """Size limit of the compile cache, which removes the least recently used folders first; 0 if each program uses its
    own default folder."""
    cpu_slots: int = 0
    """Maximum number of concurrent runs on the CPU; 0 for half the cores."""
    port_range: tuple[int, int] = (21000, 21999)
    """Ports for vLLM servers, below the kernel's own ephemeral range."""

    announce_s: float = 10.0
    announce_watched_s: float = 2.0
    http_timeout_s: float = 10.0
    lock_wait_s: float = 5.0
    claim_deadline_s: float = 600.0
    dataset_deadline_s: float = 900.0
    download_silence_s: float = 900.0
    side_by_side: bool = True
    """True if a trainer starts at the same time as its vLLM servers, provided they use other GPUs; False if it starts
    once they are ready."""
    tick_s: float = 0.05
    tick_watched_s: float = 0.02
    tree_scan_s: float = 1.0
    sample_s: float = 2.0
    heartbeat_s: float = 2.0
    heartbeat_chat_s: float = 0.2
    """Seconds between heartbeats while the chat of a served model is open; their responses bring new turns."""
    batch_s: float = 1.0
    batch_watched_s: float = 0.1
    backoff_max_s: float = 15.0
    log_batch_s: float = 10.0
    log_batch_watched_s: float = 0.5
    log_cap_bytes: int = 50_000_000
    """Number of bytes of each log's head, and of its tail, that are sent."""
    log_live_bytes: int = 50_000_000
    """Number of bytes of each log that may be sent between head and tail while somebody is watching."""
    save_deadline_s: float = 120.0
    term_grace_s: float = 0.0
    """Seconds between SIGTERM and SIGKILL. SIGTERM never saves, so there is nothing to wait for."""
    kill_deadline_s: float = 30.0
    """Seconds after SIGKILL after which a remaining process is reported as a survivor."""
    gpu_free_deadline_s: float = 15.0
    gpu_free_margin_mib: int = 300
    gpu_busy_mib: int = 1024
    """Memory in use before the start above which a leased GPU is considered busy with another program."""
    sinks_end_s: float = 5.0
    """Seconds that the sinks have after the trainer's end to send the remaining metrics, before they are ended too."""
    settle_s: float = 1.0
    """Seconds to wait after a trainer's failure for a vLLM server's failure that may be the cause."""
    attached_watch_s: float = 2.0
    attached_silence_s: float = 60.0
    server_silence_s: float = 600.0
    """Seconds for which a vLLM server with requests may generate no tokens, or not respond, while the trainer is silent
    too. There are many, because the first request to a cold server compiles kernels for minutes."""
    stall_s: float = 900.0
    """Duration of the first training step, in seconds, after which a hang is reported."""
    hang_least_s: float = 60.0
    """Minimum number of seconds between steps for a hang to be reported, however short steps usually are."""
    drain_deadline_s: float = 86_400.0
    """Seconds that a supervisor has after the end to deliver unconfirmed data; the reaper delivers what remains."""
    store_deadline_s: float = 3600.0
    refused_deadline_s: float = 60.0
    """Seconds after the end for which requests are retried if the control plane doesn't know the attempt."""

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> "HostSettings":
        """Read the settings from the environment. Raises SettingsError if a required one is missing or one is
        invalid."""
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
                raise SettingsError(f"{variable(name)} is not set, but a host can't work without it")
        if not values["runs_dir"].is_absolute():
            raise SettingsError(f"{variable('runs_dir')} must be an absolute path")
        if not re.fullmatch(r"(\d+(,\d+)*)?", values.get("gpus", "")):
            raise SettingsError(f"{variable('gpus')} must be indexes separated by commas, such as 0,1")
        return cls(**values)

    def as_env(self) -> dict[str, str]:
        """Return the settings as environment variables for a supervisor, without the path of the host's token."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "host_token_file"}
        return {variable(name): _encode(value) for name, value in values.items() if value not in (None, "", ())}

    @property
    def name(self) -> str:
        return self.host_name or socket.gethostname()

    @property
    def own_gpus(self) -> frozenset[int] | None:
        """Indexes of the GPUs that runs may use, or None for all."""
        return frozenset(int(text) for text in self.gpus.split(",")) if self.gpus else None

    @property
    def slots(self) -> int:
        return self.cpu_slots or max(1, (os.cpu_count() or 1) // 2)

    @property
    def dataset_cache_folder(self) -> Path:
        return self.dataset_cache_dir or self.runs_dir.parent / "dataset-cache"

    @property
    def compile_cache_folder(self) -> Path:
        return self.compile_cache_dir or self.runs_dir.parent / "compile-cache"

    @property
    def model_folders(self) -> tuple[Path, ...]:
        """Folders that may contain local models: the model roots, and the runs with their checkpoints."""
        return (*self.model_roots, self.runs_dir)

    @property
    def control_url_file(self) -> Path:
        """File with the control plane's address, rewritten at each start of the worker in case the address changed."""
        return self.runs_dir / "control_url"

    def host_token(self) -> str:
        """Read the host's token. Raises SettingsError if no file is set, and OSError if it can't be read."""
        if self.host_token_file is None:
            raise SettingsError(
                f"{variable('host_token_file')} is not set, so the control plane would not know this host"
            )
        return self.host_token_file.read_text().strip()


def variable(field_name: str) -> str:
    return f"GRPO_{field_name.upper()}"


def _embedded_layout(source: Mapping[str, str]) -> dict[str, Any]:
    data = source.get("CONTROLPLANE_DATA", "")
    if not data:
        return {}
    root = Path(data).absolute()
    return {"runs_dir": root / "runs", "host_token_file": root / "host_token", "model_roots": (root / "models",)}


def _decode(hint: Any, text: str, name: str) -> Any:
    try:
        if hint in (float, int, str, AtStop, StopReason):
            return hint(text)
        if hint is bool:
            return json.loads(text.lower()) is True
        if hint == tuple[str, ...]:
            return tuple(str(part) for part in json.loads(text))
        if hint == tuple[Path, ...]:
            return tuple(Path(part).absolute() for part in text.split(os.pathsep) if part)
        if hint == tuple[int, int]:
            first, last = text.split("-")
            return int(first), int(last)
        # Optional paths are made absolute for the supervisor, which has another working directory.
        return Path(text) if hint is Path else Path(text).absolute()
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{name}: {text!r} is not a valid value ({error})") from None


def _encode(value: Any) -> str:
    if isinstance(value, tuple):
        if all(isinstance(part, int) for part in value):
            return "-".join(str(part) for part in value)
        if all(isinstance(part, Path) for part in value):
            return os.pathsep.join(str(part) for part in value)
        return json.dumps(value)
    return str(value)
