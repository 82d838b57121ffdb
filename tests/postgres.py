"""A private PostgreSQL for tests, from the binaries that a distribution installs. On a Unix socket only."""

from __future__ import annotations

import fcntl
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

from tests import migrated

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
        """A started one. In a run of the tests it's a copy whose databases are born migrated: to migrate takes longer
        than most of what is tested there."""
        server = cls._in_new_folder(settings)
        try:
            if migrated.FOLDER in os.environ:
                subprocess.run(["cp", "-a", str(_migrated_data()), str(server.data)], check=True)
            else:
                server._make_data()
            server.start()
        except BaseException:
            server.remove()
            raise
        return server

    @classmethod
    def _in_new_folder(cls, settings: Mapping[str, str] | None = None) -> Postgres:
        server = cls(Path(tempfile.mkdtemp(prefix="pg-")), settings or {})
        if (user := _other_user()) is not None:
            os.chown(server.folder, user.pw_uid, user.pw_gid)
        return server

    def _make_data(self) -> None:
        argv = ["initdb", "--no-sync", "-A", "trust", "-U", "tester", "-E", "UTF8", "--locale=C.UTF-8"]
        made = subprocess.run(self._argv(*argv, "-D", str(self.data)), capture_output=True, text=True, cwd="/")
        if made.returncode:
            raise AssertionError(f"initdb failed: {made.stdout}{made.stderr}")

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

    def url(self, name: str, template: str = "template1") -> str:
        """Of a database, made if it is not there; of `template0` it's made without a table."""
        with self.connect() as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
                connection.execute(f'CREATE DATABASE "{name}" TEMPLATE {template}')  # type: ignore[call-overload]
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


def _migrated_data() -> Path:
    """The data folder of a stopped server whose `template1`, of which new databases are copies, is migrated. Made once
    for all processes of a test run."""
    folder = Path(os.environ[migrated.FOLDER])
    made = folder / "postgres"
    with (folder / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            server = Postgres._in_new_folder()
            try:
                server._make_data()
                server.start()
                migrated.migrate(CONTROLPLANE_DATABASE_URL=server.url("template1"))
                server.stop()
                shutil.move(server.data, made)
            finally:
                server.remove()
    return made


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
