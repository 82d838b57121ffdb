"""A private PostgreSQL for tests, from the binaries that a distribution installs. On a Unix socket only."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg

SETTINGS = {
    # Nothing here must outlive a power cut. What is committed must outlive a killed server, though.
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "100",
    "deadlock_timeout": "200ms",
}


def missing() -> str:
    """Why no PostgreSQL can be started here, or nothing."""
    if _binaries() is None:
        return "PostgreSQL's server is not installed (package `postgresql`)"
    if os.geteuid() == 0 and (not shutil.which("setpriv") or _other_user() is None):
        return "PostgreSQL refuses root, and there is no setpriv or no user `postgres` or `nobody` to run it as"
    return ""


@dataclass
class Postgres:
    """`server.url("name")`, `server.stop()`, `server.start()`."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    """In place of SETTINGS' or beside them."""
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def create(cls, settings: Mapping[str, str] | None = None) -> Postgres:
        server = cls(Path(tempfile.mkdtemp(prefix="pg-")), settings or {})
        if (user := _other_user()) is not None:
            os.chown(server.folder, user.pw_uid, user.pw_gid)
        argv = ["initdb", "--no-sync", "-A", "trust", "-U", "tester", "-E", "UTF8", "--locale=C.UTF-8"]
        made = subprocess.run(server._argv(*argv, "-D", str(server.data)), capture_output=True, text=True, cwd="/")
        if made.returncode:
            shutil.rmtree(server.folder, ignore_errors=True)
            raise AssertionError(f"initdb failed: {made.stdout}{made.stderr}")
        server.start()
        return server

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        options = [part for name, value in {**SETTINGS, **self.settings}.items() for part in ("-c", f"{name}={value}")]
        argv = self._argv("postgres", "-D", str(self.data), "-k", str(self.folder), *options)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, cwd="/")
        deadline = time.monotonic() + 30
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT cuts every connection and ends in order, SIGQUIT ends at once."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, name: str) -> str:
        """Of a database, made if it is not there."""
        with self.connect() as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
                connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
        return f"postgresql://tester@/{name}?host={quote(str(self.folder), safe='')}"

    def connect(self, name: str = "postgres") -> psycopg.Connection:
        """As nobody of ours: to look, to cut, to hold locks."""
        return psycopg.connect(host=str(self.folder), user="tester", dbname=name, autocommit=True)

    def terminate(self, pid: int) -> None:
        """End one connection from the server's side, whatever it is doing."""
        with self.connect() as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])

    def answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    @staticmethod
    def _argv(program: str, *arguments: str) -> list[str]:
        """As another user when we are root; it goes when we go."""
        folder = _binaries()
        assert folder is not None
        argv = [str(folder / program), *arguments]
        user = _other_user()
        if user is None:
            return argv
        identity = ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
        return ["setpriv", *identity, "--pdeathsig", "INT", *argv]


@contextmanager
def running(settings: Mapping[str, str] | None = None) -> Iterator[Postgres]:
    server = Postgres.create(settings)
    try:
        yield server
    finally:
        server.remove()


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parent.parent.name))
    if found:
        return found[-1].parent
    onpath = shutil.which("initdb")
    return Path(onpath).resolve().parent if onpath else None


def _other_user() -> pwd.struct_passwd | None:
    """Whom to run it as; None for ourselves."""
    if os.geteuid() != 0:
        return None
    names = {user.pw_name: user for user in pwd.getpwall()}
    return names.get("postgres") or names.get("nobody")
