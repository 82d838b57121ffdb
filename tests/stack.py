"""The whole product as real processes, for tests: Valkey, web, Celery control worker, Celery host worker."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from controlplane.setup.serving import claims, valkey
from controlplane.setup.serving.embedded import Installation
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from controlplane.setup.serving.processes import Fleet
from tests import migrated

FAKE_TRAINER = ROOT / "tests" / "fakes" / "fake_trainer.py"
PREPARE = """
import os, shutil
from importlib import import_module
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from controlplane.platform import staticfiles
from controlplane.platform.accounts.models import Role, User
from controlplane.catalogue.joining import credentials

begun = connection.vendor == "sqlite" and os.path.exists(first)
if connection.vendor == "sqlite" and (begun or migrated):
    shutil.copyfile(first if begun else migrated, connection.settings_dict["NAME"])
call_command("migrate", verbosity=0)
if not begun:
    for role in Role.values:
        seen = {"role": role, "toured_at": timezone.now()}
        User.objects.create_user(role, password="a long " + role + " password", **seen)
if connection.vendor == "sqlite" and not begun:
    connection.cursor().execute("VACUUM INTO %s", [first])
if os.path.exists(static):
    shutil.copytree(static, settings.STATIC_ROOT, dirs_exist_ok=True)
staticfiles.collect(lambda words: None)
if not os.path.exists(static):
    shutil.copytree(settings.STATIC_ROOT, static)
token = os.environ["GRPO_HOST_TOKEN_FILE"]
with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
    f.write(credentials.embedded_token(os.environ["GRPO_HOST_NAME"], ""))
cookies = [settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME]
sessions = {}
for role in Role.values:
    user = User.objects.get(username=role)
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    sessions[role] = session.session_key
result = [cookies, sessions]
"""


SHELL = """
import contextlib, functools, io, json, sys, traceback
import django
django.setup()
from django.db import connections
answers = sys.stdout
compiled = functools.cache(lambda code: compile(code, "<test>", "exec"))
for line in sys.stdin:
    asked = json.loads(line)
    names, printed = {"result": None, **asked["names"]}, io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compiled(asked["code"]), names)
        answer = {"result": names["result"]}
    except Exception:
        answer = {"error": printed.getvalue() + traceback.format_exc()}
    connections.close_all()
    answers.write(json.dumps(answer, default=str) + "\\n")
    answers.flush()
"""


def command_of(program: Path, **environment: str) -> str:
    """A Python program as the JSON argument list that GRPO_*_COMMAND takes; `environment` is set for it alone."""
    words = [f"{name}={value}" for name, value in environment.items()]
    return json.dumps([*(["/usr/bin/env", *words] if words else []), sys.executable, str(program)])


class Shell:
    """A Django shell that stays: a question takes milliseconds where a new process takes a second."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def run(self, code: str, names: dict[str, Any]) -> Any:
        with self._lock:
            process = self._process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"code": code, "names": names}) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline() or '{"error": "The shell has ended."}')
        if "error" in answer:
            raise AssertionError(f"the code failed in the stack's Django:\n{answer['error']}")
        return answer["result"]

    def stop(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.communicate()  # closes its input, which ends it
                self._process = None

    def _start(self) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", SHELL]
        return subprocess.Popen(
            argv, env=dict(self._environment), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )


@dataclass
class Stack:
    """`stack.url`, `stack.client("operator")`, `stack.django("result = Run.objects.count()")`."""

    installation: Installation
    environment: dict[str, str]
    fleet: Fleet = field(default_factory=lambda: Fleet(report=print))
    sessions: dict[str, str] = field(default_factory=dict)
    session_cookie: str = ""
    csrf_cookie: str = ""
    listener: socket.socket | None = None
    shell: Shell = field(init=False)

    def __post_init__(self) -> None:
        self.shell = Shell(self.environment)

    @classmethod
    def start(
        cls,
        data: Path,
        environment: dict[str, str] | None = None,
        *,
        host_app: str = "",
        redis_url: str = "",
        web_workers: int = 1,
        bind: str = "127.0.0.1",
    ) -> Stack:
        """`host_app`: another Celery application for the host's worker, that imports the real one. The trainer's
        interpreter is ours unless `environment` names another: the real one is asked about TRL, which takes seconds."""
        listener = claims.listen(bind, 0)
        installation = Installation(
            data=data,
            port=listener.getsockname()[1],
            redis_url=redis_url or valkey.redis_url(valkey.socket_path(data)),
            embedded_redis=not redis_url,
            host_name="testhost",
            trainer_python=None,
            bind=bind,
            web_workers=web_workers,
        )
        installation.make_folders()
        (installation.runs_dir / ".cache").symlink_to(_first("described"), target_is_directory=True)
        ours = {**installation.environment(), "GRPO_TRAINER_PYTHON": sys.executable}
        stack = cls(installation, {**ours, **(environment or {})}, listener=listener)
        try:
            stack._start_children(host_app)
        except BaseException:
            stack.stop()
            raise
        return stack

    def _start_children(self, host_app: str) -> None:
        assert self.listener is not None
        files = {"first": str(_first("database") / "sqlite3"), "static": str(_first("static") / "collected")}
        (self.session_cookie, self.csrf_cookie), self.sessions = self.django(
            PREPARE, **files, migrated=str(migrated.file() or "")
        )
        here = self.installation
        if here.embedded_redis:
            self.fleet.start(valkey.program(here.data))
            self.fleet.wait_ready(["valkey"])
        host = here.host_worker()
        if host_app:
            host = replace(host, argv=[host_app if word == "workers.host.celery" else word for word in host.argv])
        for program in (here.web(self.listener), here.control_worker(), host):
            self.fleet.start(replace(program, env={**(program.env or {}), **self.environment}))
        self.fleet.wait_ready(["web", "control", "host"], deadline_s=180)

    @property
    def url(self) -> str:
        return self.installation.control_url

    @property
    def runs_dir(self) -> Path:
        return self.installation.runs_dir

    def client(self, role: str = "operator") -> httpx.Client:
        """A signed-in HTTP client; it sends the CSRF token with every request that needs one."""
        # No certificates are read: it speaks plain HTTP.
        client = httpx.Client(base_url=self.url, cookies=self.cookies(role), timeout=60, verify=False)
        # The token is a cookie and a header of the same value (Django's double submit): any 32 letters do.
        client.cookies.set(self.csrf_cookie, "t" * 32)
        client.headers.update({"X-CSRFToken": "t" * 32, "Origin": self.url})
        return client

    def cookies(self, role: str = "operator") -> dict[str, str]:
        return {self.session_cookie: self.sessions[role]}

    def django(self, code: str, **names: Any) -> Any:
        """Run code in a Django shell of this installation; answers what it assigned to `result` (JSON)."""
        return self.shell.run(code, names)

    def stop(self) -> None:
        """Everything, supervisors and their trees included, and the folder."""
        with contextlib.suppress(ProcessLookupError):
            self.fleet.stop()
        self.shell.stop()
        for lock in self.runs_dir.glob("*/*/supervisor.lock"):
            _kill_attempt(lock)
        if self.listener is not None:
            self.listener.close()
        shutil.rmtree(self.installation.data, ignore_errors=True)


@cache
def _first(name: str) -> Path:
    """A folder in which the first product of this process leaves what the others need not make again: its database
    with the users in it, its static files, and what the trainer's interpreter said of itself."""
    folder = Path(tempfile.mkdtemp(prefix="gt-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / name).mkdir()
    return folder / name


def _kill_attempt(lock: Path) -> None:
    """If its supervisor still holds the lock: SIGKILL to it and to everything it recorded."""
    with lock.open("r+") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = json.load(f)["pid"]
    pids = [holder]
    with contextlib.suppress(FileNotFoundError, ValueError):
        pids += [pid for pid, _ in json.loads((lock.parent / "pids.json").read_text())["processes"]]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
