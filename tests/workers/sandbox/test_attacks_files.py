"""Programs that read, change or link files which are not theirs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from workers.sandbox.outcomes import Backend, Kind, Outcome
from workers.sandbox.pool import Sandbox

Attack = Callable[..., Outcome]
Gains = Callable[..., list[str]]
pytestmark = pytest.mark.processes
SECRET = "the key of the host"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A run's folder with a secret, which is as it was at the end."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o644)
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    yield tmp_path
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["open", "secret"]
    assert (tmp_path / "secret").read_text() == SECRET
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o644


@pytest.mark.telling
def test_no_secret_of_home_run_folder_or_system_can_be_read(gains: Gains, folder: Path) -> None:
    home = Path.home() / ".sandbox-test-secret"
    home.write_text(SECRET)
    source = """
import glob, io, mmap
def attack(*paths):
    for path in paths:
        tried(path, lambda: open(path).read())
        tried("O_PATH " + path, lambda: os.read(os.open(path, os.O_RDONLY), 10))
        tried("sendfile " + path, lambda: os.sendfile(1, os.open(path, os.O_RDONLY), 0, 10))
        folder, name = os.path.split(path)
        tried("list " + path, lambda: -1 if name not in os.listdir(folder) else 1)
        tried("in C " + path, lambda: libc.open(path.encode(), 0))
    return done
"""
    system = ["/etc/passwd", "/etc/shadow", "/etc/hosts", "/etc/resolv.conf", "/proc/self/environ", "/proc/1/environ",
              "/proc/self/maps", "/proc/self/mem", "/proc/cpuinfo", "/sys/kernel/notes", "/dev/mem", "/var/log/x",
              "/run/secrets/x", str(Path.home() / ".ssh" / "id_rsa"), __file__, str(ROOT / "manage.py")]  # fmt: skip
    try:
        assert gains(source, str(folder / "secret"), str(home), *system) == []
    finally:
        home.unlink()


def test_no_file_of_the_machine_can_be_locked(gains: Gains) -> None:
    source = """
import fcntl, sys
def attack():
    files = [os.open(path, os.O_RDONLY) for path in (os.__file__, os.path.dirname(os.__file__), sys.executable)]
    for file in files:
        for way in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            tried(f"flock {way} {file}", lambda: fcntl.flock(file, way | fcntl.LOCK_NB))
            tried(f"flock in C {way} {file}", lambda: libc.flock(file, way | fcntl.LOCK_NB))
        tried(f"fcntl {file}", lambda: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
    return done
"""
    assert gains(source) == []


def test_no_way_round_leads_to_a_secret(gains: Gains, folder: Path) -> None:
    source = """
def attack(secret, folder):
    for way in ("/proc/self/root", "/proc/self/cwd", "/proc/1/root", "/proc/self/fd/0/..", "/../..", "/tmp/../..",
                "/usr/lib/../..", "/lib/../.."):
        tried(way, lambda: open(way + secret).read())
    tried("chdir", lambda: (os.chdir(folder), open("secret").read()))
    tried("dir_fd", lambda: os.open("secret", os.O_RDONLY, dir_fd=os.open(folder, os.O_PATH)))
    tried("chroot", lambda: os.chroot(folder))
    tried("fchdir", lambda: (os.fchdir(os.open("/", os.O_PATH)), open("." + secret).read()))
    return done
"""
    assert gains(source, str(folder / "secret"), str(folder)) == []


def test_links_lead_nowhere(gains: Gains, folder: Path) -> None:
    source = """
def attack(secret, folder):
    tried("symlink", lambda: (os.symlink(secret, "link"), open("link").read()))
    tried("symlink to write", lambda: (os.symlink(secret, "out"), open("out", "w").write("x")))
    tried("hard link", lambda: os.link(secret, "hard"))
    tried("hard link of what is there", lambda: os.link("/usr/lib/os-release", "hard"))
    tried("link there", lambda: os.symlink("/etc", folder + "/open/link"))
    tried("hard link there", lambda: os.link("/usr/lib/os-release", folder + "/open/hard"))
    tried("rename there", lambda: os.rename(secret, folder + "/open/moved"))
    return done
"""
    assert gains(source, str(folder / "secret"), str(folder)) == []


def test_nothing_outside_the_working_folder_can_be_changed(gains: Gains, folder: Path) -> None:
    source = """
def attack(secret, folder, library):
    for place in (folder, folder + "/open", "/", "/usr", "/usr/lib", "/etc", "/dev", "/dev/shm", "/var/tmp", "/run",
                  "/home", "/root", library):
        tried("create in " + place, lambda: open(place + "/sandbox-test", "w"))
        tried("folder in " + place, lambda: os.mkdir(place + "/sandbox-test-folder"))
        tried("pipe in " + place, lambda: os.mkfifo(place + "/sandbox-test-pipe"))
        tried("no name in " + place, lambda: os.open(place, os.O_TMPFILE | os.O_RDWR))
    for path in (secret, library + "/os.py"):
        tried("write " + path, lambda: open(path, "a").write("x"))
        tried("truncate " + path, lambda: os.truncate(path, 0))
        tried("mode " + path, lambda: os.chmod(path, 0o666))
        tried("owner " + path, lambda: os.chown(path, 0, 0))
        tried("times " + path, lambda: os.utime(path, (0, 0)))
        tried("remove " + path, lambda: os.remove(path))
        tried("attribute " + path, lambda: os.setxattr(path, "user.x", b"x"))
    tried("device", lambda: os.mknod("device", 0o20666, os.makedev(1, 1)))
    tried("remount", lambda: libc.mount(b"none", b"/", b"", 32, b""))
    return done
"""
    assert gains(source, str(folder / "secret"), str(folder), os.path.dirname(os.__file__)) == []


def test_what_is_written_stays_where_only_it_sees_it(attack: Attack, sandbox: Sandbox) -> None:
    source = """
import os
def attack():
    try:
        with open("note", "w") as file: file.write("x")
    except OSError:
        return [os.getcwd(), None]
    return [os.getcwd(), open("note").read()]
"""
    expected = ["/tmp", "x"] if sandbox.backend is Backend.BUBBLEWRAP else ["/", None]
    assert attack(source).value == expected
    assert not Path("/tmp/note").exists()


def test_a_result_that_is_a_link_to_a_secret_is_no_way_out(attack: Attack, folder: Path) -> None:
    """There is no result file at all: what is given goes over a socket."""
    source = """
import os
def attack(secret):
    for name in ("result", "result.json", "output", "/tmp/result"):
        try: os.symlink(secret, name)
        except OSError: pass
    return "done"
"""
    outcome = attack(source, str(folder / "secret"))
    assert (outcome.kind, outcome.value) == (Kind.OK, "done")
    assert SECRET not in repr(outcome)


def test_the_library_is_there_to_be_imported(attack: Attack) -> None:
    source = """
import asyncio, csv, datetime, decimal, hashlib, random, sqlite3, statistics, unittest
async def wait():
    await asyncio.sleep(0)
    return hashlib.sha256(b"x").hexdigest()[:8]
def attack(): return [asyncio.run(wait()), str(decimal.Decimal("1.1") + 1)]
"""
    outcome = attack(source)
    assert (outcome.kind, outcome.value) == (Kind.OK, ["2d711642", "2.1"])


def test_devices_that_are_needed_are_there(attack: Attack) -> None:
    source = """
import os
def attack():
    open("/dev/null", "w").write("x")
    return [open("/dev/zero", "rb").read(2), len(open("/dev/urandom", "rb").read(4)), os.read(0, 1)]
"""
    assert attack(source).value == [b"\0\0", 4, b""]
