"""Announcements of the host's inventory to the control plane, every 10 s, or every 2 s while somebody is watching.

The Celery worker's own process announces, so a silent host is one that launches can't reach. A subprocess queries the
trainer's interpreter for its capabilities, because importing TRL takes ten seconds and this program never imports it.
"""

import contextlib
import hashlib
import json
import logging
import os
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from workers.contract.run import gateway, sinks
from workers.contract.stack import packages
from workers.contract.wire.joining import VERSION
from workers.contract.wire.processes import die_with_parent
from workers.host.inventory import Inventory
from workers.host.runsizes import RunSizes
from workers.settings import HostSettings
from workers.supervisor.commands import SOURCE_ROOT, python_of, trainer_tool_environment
from workers.supervisor.processes.loops import Loop
from workers.supervisor.reports.control import Control, ControlError, ControlRefused

log = logging.getLogger(__name__)

DESCRIBE_TIMEOUT_S = 300
SANDBOX_TIMEOUT_S = 120
ANNOUNCED_FILE = ".announced"
SANDBOX_EVERY_S = 600
"""Seconds between two self-tests of the sandbox, whose packages and kernel settings may change while a host runs."""
VERSIONS = (
    "torch", "trl", "transformers", "peft", "accelerate", "vllm", "deepspeed", "bitsandbytes", "flash-attn",
    "liger-kernel",
)  # fmt: skip
_VERSIONS_CODE = """
import importlib.metadata, json, sys
versions = {"python": sys.version.split()[0]}
for name in sys.argv[1:]:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(versions))
"""
_CUDA_CODE = """
import json, torch
print(json.dumps({"built_for": torch.version.cuda or "", "usable": torch.cuda.is_available()}))
"""
"""Code that queries CUDA without leaving a CUDA context: its process ends, and is_available doesn't create one."""


class TrainerProbe:
    """A probe of the trainer's interpreter, which runs in a thread and caches facts by the versions of packages."""

    def __init__(self, settings: HostSettings) -> None:
        self._settings = settings
        self._cache = settings.runs_dir / ".cache"
        self.state = "checking"
        self.versions: dict[str, str] = {}
        self.schema: dict[str, Any] | None = None
        self.sandbox: dict[str, Any] | None = None
        """{"backend": its name or None, "tried": {backend: why it doesn't work, or ""}}; None until known."""
        self._sandbox_due = float("-inf")
        self.packages: dict[str, str] | None = None
        """Versions of the optional packages that have their own interpreters (environments, Atropos, sinks)."""
        self.driver = ""
        self.cuda: dict[str, Any] | None = None
        """{"built_for": torch's CUDA version, "usable": whether torch can use the GPUs}; None if unknown."""
        self._cuda_key: tuple[str, str] | None = None

    def tick(self, now: float) -> float:
        """Query the interpreter again, because packages may be installed and upgraded while a host runs. Return the
        seconds until the next query."""
        argv = [self._settings.trainer_python, "-c", _VERSIONS_CODE, *VERSIONS]
        versions = {str(name): str(value) for name, value in (self._run_query(argv, timeout_s=60) or {}).items()}
        if "trl" not in versions:
            self.state, self.versions, self.schema = "missing", versions, None
        elif versions != self.versions or self.state != "ready":
            self._describe(versions)
        if not self.driver:
            self.cuda = self._cuda_key = None
        elif "torch" in versions and self._cuda_key != (self.driver, versions["torch"]):
            self._query_cuda(versions["torch"])
        if versions and now >= self._sandbox_due:
            self._test_sandbox(now)
        if versions:
            self._query_packages()
        return 60.0 if self.state == "ready" else 5.0

    def _query_packages(self) -> None:
        self.packages = {}
        for python, names in (
            (self._settings.environments_python or python_of(packages.ENVIRONMENT), packages.THIRD_PARTY_PACKAGES),
            (self._settings.atropos_python or python_of(gateway.ENVIRONMENT), (gateway.ATROPOSLIB,)),
            (self._settings.sinks_python or python_of(sinks.ENVIRONMENT), tuple(sinks.DISTRIBUTIONS.values())),
        ):
            versions = self._run_query([python, "-c", _VERSIONS_CODE, *names], timeout_s=60) or {}
            self.packages |= {name: str(versions[name]) for name in names if name in versions}

    def _describe(self, versions: dict[str, str]) -> None:
        self.versions = versions
        source = (SOURCE_ROOT / "workers" / "trainer" / "describe.py").read_bytes()
        key = json.dumps([self._settings.trainer_python, sorted(versions.items())]).encode() + source
        file = self._cache / f"trainer-{hashlib.sha256(key).hexdigest()[:16]}.json"
        schema = _read_object(file)
        if schema is None:
            self.state = "checking"
            argv = [self._settings.trainer_python, "-m", "workers.trainer.describe"]
            schema = self._run_query(argv, timeout_s=DESCRIBE_TIMEOUT_S)
            if schema is not None:
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _replace(file, json.dumps(schema))
        self.schema = schema
        self.state = "missing" if schema is None else "ready"

    def _query_cuda(self, torch: str) -> None:
        argv = [self._settings.trainer_python, "-c", _CUDA_CODE]
        self.cuda = self._run_query(argv, timeout_s=DESCRIBE_TIMEOUT_S, gpus=True)
        self._cuda_key = (self.driver, torch) if self.cuda is not None else None

    def _test_sandbox(self, now: float) -> None:
        argv = [self._settings.trainer_python, "-m", "workers.sandbox", "--json"]
        report = self._run_query(argv, timeout_s=SANDBOX_TIMEOUT_S, fails_with=1)
        self.sandbox = report or {
            "backend": None,
            "tried": {"self-test": "it reported nothing; see the worker's log"},
        }
        self._sandbox_due = now + (SANDBOX_EVERY_S if report else 60.0)

    def _run_query(
        self, argv: list[str], *, timeout_s: float, fails_with: int = 0, gpus: bool = False
    ) -> dict[str, Any] | None:
        """Run a program, and return the last line of its output as a JSON object, or None if there is none.
        `fails_with`: an exit code other than 0 with which the output is valid too."""
        environment = trainer_tool_environment(self._settings, os.environ, gpus=gpus)
        try:
            completed = subprocess.run(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
                preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGKILL),
            )
            if completed.returncode not in (0, fails_with):
                completed.check_returncode()
            result = json.loads(completed.stdout.splitlines()[-1])
        except FileNotFoundError:
            return None  # not installed yet
        except subprocess.CalledProcessError as error:
            log.warning("%s failed: %s", argv[1:3], error.stderr.decode(errors="replace")[-2000:])
            return None
        except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
            log.warning("%s reported nothing: %s", argv[1:3], error)
            return None
        return result if isinstance(result, dict) else None


def _read_object(file: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None


class Announcer:
    """Sender of the inventory, and of the trainer's schema and the runs' sizes when they have changed."""

    def __init__(
        self,
        settings: HostSettings,
        probe: TrainerProbe,
        inventory: Inventory,
        control: Control,
        sizes: RunSizes | None = None,
    ) -> None:
        self._settings = settings
        self._probe = probe
        self._inventory = inventory
        self._control = control
        self._sizes = sizes or RunSizes(settings.runs_dir)
        self._sent_schema: dict[str, Any] | None = None
        self._sent_sizes: dict[str, int] | None = None
        self._failing = ""

    def tick(self, now: float) -> float:
        schema = self._probe.schema
        unsent = schema if schema != self._sent_schema else None
        body: dict[str, Any] = {"name": self._settings.name, "inventory": self.inventory(), "trainer_schema": unsent}
        body |= {"version": VERSION, "time": time.time()}
        sizes = self._sizes.measured
        if sizes is not self._sent_sizes:
            body["run_sizes"] = sizes
        try:
            response = self._control.announce(body)
        except ControlError as error:
            if str(error) != self._failing:
                log.warning("this host could not announce itself: %s", error)
            self._failing = str(error)
            refused = isinstance(error, ControlRefused)  # the next request would be refused too
            return self._settings.announce_s if refused else min(2.0, self._settings.announce_s)
        self._failing = ""
        with contextlib.suppress(OSError):
            # A container's health check reads the file's age: the time since the control plane last responded.
            (self._settings.runs_dir / ANNOUNCED_FILE).touch()
        self._sent_schema = None if response.get("want_schema") else schema
        self._sent_sizes = sizes
        if response.get("want_schema") and schema is not None:
            return 0.5
        # Sooner while a form or a page is waiting for the next announcement.
        is_urgent = schema is None or bool(response.get("watched"))
        watched_s = min(self._settings.announce_watched_s, self._settings.announce_s)
        return watched_s if is_urgent else self._settings.announce_s

    def inventory(self) -> dict[str, Any]:
        """Return the host's resources and what is known so far about its programs."""
        probe = self._probe
        resources = self._inventory.read()
        probe.driver = resources["driver"]
        facts = {"sandbox": probe.sandbox, "cuda": probe.cuda, "packages": probe.packages}
        facts = {name: fact for name, fact in facts.items() if fact is not None}
        return {**resources, "versions": probe.versions, "trainer": probe.state, **facts}


_loops: list[Loop] = []
_lock = threading.Lock()


def start(settings: HostSettings) -> None:
    """Start announcing, and write the control plane's address to a file for supervisors."""
    with _lock:
        if _loops:
            return
        quiet_http_log()
        settings.runs_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_control_url(settings)
        probe = TrainerProbe(settings)
        control = Control.of(settings, settings.host_token())
        sizes = RunSizes(settings.runs_dir)
        announcer = Announcer(settings, probe, Inventory(settings), control, sizes)
        _loops.extend(
            [Loop("trainer-probe", probe.tick), Loop("run-sizes", sizes.tick), Loop("announce", announcer.tick)]
        )
        for loop in _loops:
            loop.start()


def stop() -> None:
    with _lock:
        for loop in _loops:
            loop.stop()
        _loops.clear()


def write_control_url(settings: HostSettings) -> None:
    """Write the control plane's address to the file that supervisors read."""
    _replace(settings.control_url_file, settings.control_url + "\n")


def _replace(file: Path, text: str) -> None:
    temporary = file.with_suffix(f".{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(file)


def quiet_http_log() -> None:
    """Stop httpx from logging every heartbeat."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
