"""Choice of the best backend on this machine: each backend is attacked, and the first without an escape is used."""

import os
import socket
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.sandbox.outcomes import Backend, Job, Kind, Limits, Outcome, SandboxUnavailable
from workers.sandbox.pool import Sandbox

ORDER = (Backend.BUBBLEWRAP, Backend.LANDLOCK)
"""Backends to try, the best first. BARE isolates little and is never chosen."""

_LIMITS = Limits(seconds=10, memory_mb=64, disk_mb=2)
_SHORT_LIMITS = Limits(seconds=0.3, memory_mb=64)
_cached: "BackendReport | None" = None
_lock = threading.Lock()


@dataclass(frozen=True)
class BackendReport:
    backend: Backend | None
    """Best backend that resists all attacks; None if none does."""
    tried: dict[Backend, str]
    """Reason, for users, why each backend fails; "" if it resists all attacks."""


@dataclass(frozen=True)
class _Attack:
    name: str
    """Escape that a successful attack proves, such as "files outside could be read"."""
    source: str
    """Code to append to _TRY. It defines attack(secret, folder, pid, port), which returns the parts that succeeded."""
    bare: bool = False


def probe() -> BackendReport:
    """Return the report for this machine and user. Each process runs the test only once."""
    global _cached
    with _lock:
        if _cached is None:
            reasons = {backend: lacks(backend) for backend in ORDER}
            best_backend = next((backend for backend, reason in reasons.items() if not reason), None)
            _cached = BackendReport(best_backend, reasons)
        return _cached


def best() -> Backend:
    """Return the best backend. Raises SandboxUnavailable, with each backend's reason, if none resists all attacks."""
    report = probe()
    if report.backend is None:
        raise SandboxUnavailable(" ".join(f"{name}: {reason}" for name, reason in report.tried.items()))
    return report.backend


def lacks(backend: Backend) -> str:
    """Explain why a backend fails; return "" if it resists all attacks."""
    attacks = [attack for attack in ATTACKS if attack.bare or backend is not Backend.BARE]
    try:
        with Sandbox(backend) as sandbox, AttackTargets() as targets:
            jobs = [Job(_TRY + attack.source, "attack", targets.arguments) for attack in attacks]
            outcomes = sandbox.run([*jobs, Job("value = 6 * 7\ndef answer(): return value", "answer")], _LIMITS)
            [endless] = sandbox.run([Job("while True: pass")], _SHORT_LIMITS)
            damage = targets.damage()
    except (SandboxUnavailable, OSError) as error:
        return str(error)
    *attack_outcomes, harmless = outcomes
    if (harmless.kind, harmless.value) != (Kind.OK, 42):
        return f"a harmless program didn't run: {harmless.kind}, {harmless.message}"
    escapes = [
        f"{attack.name} ({parts})"
        for attack, outcome in zip(attacks, attack_outcomes, strict=True)
        if (parts := _succeeded(outcome))
    ]
    if endless.kind is not Kind.TIMEOUT:
        escapes.append(f"an endless loop ended as {endless.kind}")
    if damage and backend is not Backend.BARE:
        escapes.append(damage)
    return "; ".join(escapes)


def _succeeded(outcome: Outcome) -> str:
    """Return the parts of an attack that succeeded, or "" if it was killed or ran out of memory."""
    if outcome.kind is Kind.OK:
        return ", ".join(outcome.value) if isinstance(outcome.value, list) else "no result"
    return "" if outcome.kind in (Kind.MEMORY, Kind.KILLED) else f"unknown: {outcome.kind}, {outcome.message}"


class AttackTargets:
    """Targets of the attacks in this process: a secret file, a folder to write to, and a listening port."""

    def __enter__(self) -> "AttackTargets":
        self._folder = _temporary_folder()
        self._path = Path(self._folder.name)
        (self._path / "secret").write_text("secret")
        self._server = socket.create_server(("127.0.0.1", 0))
        self._hidden = socket.socket(socket.AF_UNIX)
        self._hidden.bind(b"\0" + os.fsencode(self._path))
        self._hidden.listen()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()
        self._hidden.close()
        self._folder.cleanup()

    @property
    def arguments(self) -> tuple[Any, ...]:
        return str(self._path / "secret"), str(self._path), os.getpid(), self._server.getsockname()[1]

    def damage(self) -> str:
        """Describe the damage to the targets, whatever the attacks claim; return "" if there is none."""
        if sorted(path.name for path in self._path.iterdir()) != ["secret"]:
            return "files appeared outside"
        return "" if (self._path / "secret").read_text() == "secret" else "a file of the user was changed"


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="sandbox-test-")
    except FileNotFoundError:  # a read-only container
        return tempfile.TemporaryDirectory(prefix="sandbox-test-", dir="/dev/shm")


_TRY = """
import ctypes, os
done = []
def tried(name, do):
    try:
        result = do()
    except BaseException:
        return
    if not (isinstance(result, int) and result < 0):
        done.append(name)
libc = ctypes.CDLL(None)
"""

ATTACKS = (
    _Attack(
        "files outside could be read",
        """
def attack(secret, folder, pid, port):
    for path in (secret, "/etc/passwd", "/etc/hostname", f"/proc/{pid}/environ", "/proc/self/environ",
                 f"/proc/{pid}/cmdline", f"/proc/{pid}/mem", "/dev/mem", "/dev/kmsg", "/dev/shm/x"):
        tried(path, lambda: open(path, "rb").read(1))
    for path in (folder, os.path.expanduser("~root"), "/home", "/proc", "/sys"):
        tried(path, lambda: os.listdir(path))
    return done
""",
    ),
    _Attack(
        "files outside could be changed",
        """
def attack(secret, folder, pid, port):
    inside = os.path.join(folder, "new")
    tried("write", lambda: open(secret, "a").write("x"))
    tried("create", lambda: open(inside, "w"))
    tried("truncate", lambda: os.truncate(secret, 0))
    tried("mode", lambda: os.chmod(secret, 0o777))
    tried("times", lambda: os.utime(secret))
    tried("remove", lambda: os.unlink(secret))
    tried("rename", lambda: os.rename(secret, inside))
    tried("symlink", lambda: os.symlink(secret, inside))
    tried("link", lambda: os.link(secret, inside))
    tried("folder", lambda: os.mkdir(inside))
    tried("system", lambda: open("/usr/lib/new", "w"))
    tried("shm", lambda: open("/dev/shm/sandbox-test", "w"))
    return done
""",
    ),
    _Attack(
        "more disk than allowed could be filled",
        """
PLACES = {os.getcwd(), "/tmp", "/var/tmp", "/dev/shm"}
def attack(secret, folder, pid, port):
    written = 0
    for number in range(64):
        for place in PLACES:
            try:
                with open(f"{place}/fill-{number}", "wb", 0) as file:
                    written += file.write(b"x" * 262144)
            except OSError:
                pass
    for number in range(64):
        for place in PLACES:
            try:
                os.unlink(f"{place}/fill-{number}")
            except OSError:
                pass
    return [f"{written} bytes"] if written > 2 * 1024 * 1024 else []
""",
    ),
    _Attack(
        "the network could be reached",
        """
import socket
def attack(secret, folder, pid, port):
    tried("TCP", lambda: socket.create_connection(("127.0.0.1", port), 2))
    tried("TCP socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    tried("UDP socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    tried("IPv6 socket", lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM))
    tried("raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
    tried("Unix socket", lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + folder))
    return done
""",
        bare=True,
    ),
    _Attack(
        "other processes could be signalled",
        """
def attack(secret, folder, pid, port):
    tried("the caller", lambda: os.kill(pid, 0))
    tried("the parent", lambda: os.kill(os.getppid(), 0) if os.getppid() else -1)
    tried("all", lambda: os.kill(-1, 0))
    tried("the group", lambda: os.kill(0, 0))
    tried("by pidfd", lambda: os.pidfd_open(pid))
    tried("ptrace", lambda: libc.ptrace(16, pid, 0, 0))
    return done
""",
        bare=True,
    ),
    _Attack(
        "processes could be started",
        """
import threading
def attack(secret, folder, pid, port):
    def fork():
        if os.fork() == 0:
            os._exit(0)
    tried("fork", fork)
    tried("spawn", lambda: os.posix_spawn("/bin/true", ["true"], {}))
    tried("exec", lambda: os.execv("/bin/true", ["true"]))
    tried("thread", lambda: threading.Thread(target=len, args=("",)).start())
    return done
""",
        bare=True,
    ),
    _Attack(
        "the kernel let in more than it should",
        """
def attack(secret, folder, pid, port):
    for name, numbers in {"unshare": (272, 97), "mount": (165, 40), "setns": (308, 268), "bpf": (321, 280),
                          "io_uring": (425, 425), "keyctl": (250, 219), "memfd": (319, 279), "shmget": (29, 194),
                          "userfaultfd": (323, 282), "perf": (298, 241)}.items():
        number = numbers[os.uname().machine == "aarch64"]
        buffer = ctypes.create_string_buffer(128)
        tried(name, lambda: libc.syscall(number, 0x10000000 if name == "unshare" else 0, buffer, 64, 0o1600, 0, 0))
    return done
""",
        bare=True,
    ),
    _Attack(
        "more memory than allowed could be had",
        """
def attack(secret, folder, pid, port):
    held = []
    try:
        while len(held) < 512:
            held.append(bytearray(1 << 20))
    except MemoryError:
        pass
    size = len(held)
    del held
    return [f"{size} MiB"] if size > 200 else []
""",
        bare=True,
    ),
    _Attack(
        "the environment is not empty",
        """
def attack(secret, folder, pid, port):
    known = {"PATH", "HOME", "LANG", "PWD", "LC_CTYPE", "LD_BIND_NOW"}
    return [name for name in os.environ if name not in known and not name.endswith("_NUM_THREADS")]
""",
        bare=True,
    ),
)
