"""An installation on one machine: the environment of its processes, and its programs."""

import os
import socket
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path

from controlplane.platform.datafolder import incoming
from controlplane.setup.serving.processes import ServedProgram
from workers.contract.wire.joining import celery_worker, host_worker
from workers.contract.wire.processes import niceness

MAX_FRAME_BYTES = 64 * 2**10
"""Maximum size of a websocket frame from a browser, which sends only short JSON objects."""


@dataclass(frozen=True)
class Installation:
    """Settings of an installation that its processes need."""

    data: Path
    port: int
    redis_url: str
    host_name: str
    trainer_python: Path | None
    embedded_redis: bool = True
    bind: str = "127.0.0.1"
    web_workers: int = 1

    @property
    def control_url(self) -> str:
        """Address of the web for users and supervisors on this machine."""
        return f"http://{'127.0.0.1' if self._binds_all else self._host}:{self.port}"

    @property
    def _host(self) -> str:
        return f"[{self.bind}]" if ":" in self.bind else self.bind

    @property
    def _binds_all(self) -> bool:
        return self.bind in ("0.0.0.0", "::", "")  # noqa: S104

    @property
    def runs_dir(self) -> Path:
        return self.data / "runs"

    @property
    def models_dir(self) -> Path:
        return self.data / "models"

    @property
    def host_token_file(self) -> Path:
        return self.data / "host_token"

    def make_folders(self) -> None:
        for folder in (self.data, self.runs_dir, self.models_dir):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        """Return the environment of the child processes. The user's variables take precedence over our defaults."""
        defaults = {
            "GRPO_HOST_NAME": self.host_name,
            "GRPO_RUNS_DIR": str(self.runs_dir),
            "GRPO_HOST_TOKEN_FILE": str(self.host_token_file),
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "PYTHONUNBUFFERED": "1",
        }
        if self.trainer_python is not None:
            defaults["GRPO_TRAINER_PYTHON"] = str(self.trainer_python)
        allowed = [*os.environ.get("CONTROLPLANE_HOSTS", "").split(","), *([] if self._binds_all else [self._host])]
        variables = {
            # The address that we listen on is also a valid Host header.
            "CONTROLPLANE_HOSTS": ",".join(dict.fromkeys(name for name in allowed if name)),
            "CONTROLPLANE_DATA": str(self.data),
            "REDIS_URL": self.redis_url,
            "GRPO_CONTROL_URL": self.control_url,
        }
        return {**defaults, **os.environ, **variables}

    def web(self, listener: socket.socket) -> ServedProgram:
        """Return the web server, which listens on a socket that we have opened. A busy port thus gives a clear message,
        and connections wait, instead of being refused, while the server restarts."""
        argv = [sys.executable, "-m", "uvicorn", "controlplane.asgi:application", "--fd", str(listener.fileno())]
        argv += ["--workers", str(self.web_workers), "--lifespan", "off", "--no-access-log", "--log-level", "warning"]
        argv += ["--http", "controlplane.setup.serving.client_deadlines:ClientDeadlines"]
        argv += ["--timeout-graceful-shutdown", "3", "--no-server-header"]
        proxies = os.environ.get("CONTROLPLANE_PROXIES", "")
        argv += ["--proxy-headers", "--forwarded-allow-ips", proxies] if proxies else ["--no-proxy-headers"]
        argv += ["--ws-max-size", str(MAX_FRAME_BYTES)]
        # A frame is encoded once for all viewers; compressing it again for each of 200 would cost more than sending it.
        argv += ["--ws-per-message-deflate", "false"]
        # Request bodies are buffered in TMPDIR before any upload handler sees them, and /tmp may be memory.
        bodies = {"TMPDIR": str(incoming(self.data))}
        return ServedProgram(
            name="web",
            argv=argv,
            env=self.environment() | bodies,
            log=self.data / "web.log",
            ready=self.web_responds,
            pass_fds=(listener.fileno(),),
            niceness=niceness(),
        )

    def control_worker(self) -> ServedProgram:
        """Return the control plane's Celery worker, with beat."""
        # One more than the datasets processed at once (datasets.worker.SLOTS), so that the tick never waits for one.
        node = f"control@{self.host_name}"
        argv = celery_worker(sys.executable, "controlplane.celery", "control", node, concurrency=3)
        argv += ["--beat", "--schedule", str(self.data / "beat"), "--pidfile", ""]
        return replace(self._worker("control", argv), niceness=niceness())

    def host_worker(self) -> ServedProgram:
        """Return this machine's host worker, which launches, stops and reaps runs."""
        return self._worker("host", host_worker(sys.executable, self.host_name))

    def _worker(self, name: str, argv: list[str]) -> ServedProgram:
        log = self.data / f"{name}.log"
        size = log.stat().st_size if log.exists() else 0

        def ready() -> bool:
            with log.open("rb") as log_file:
                log_file.seek(size)
                return b" ready." in log_file.read()

        return ServedProgram(name=name, argv=argv, env=self.environment(), log=log, ready=ready)

    def web_responds(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.control_url}/healthz", timeout=2) as response:  # noqa: S310
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False
