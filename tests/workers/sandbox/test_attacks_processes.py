"""Programs that start, signal, trace or outlive processes, or end their own in odd ways."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.workers.sandbox.conftest import LIMITS, alive, zygote
from workers.sandbox.outcomes import Backend, Kind, Outcome
from workers.sandbox.pool import Sandbox

Attack = Callable[..., Outcome]
Gains = Callable[..., list[str]]
pytestmark = pytest.mark.processes


@pytest.fixture
def victim() -> Iterator[int]:
    """A process of the same user, which must be alive at the end."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    assert process.poll() is None, "it was ended"
    process.communicate(b"\n")


@pytest.mark.telling
def test_no_process_and_no_thread_can_be_started(gains: Gains) -> None:
    source = """
import subprocess, threading, _thread, multiprocessing, concurrent.futures, pty
def forked(fork):
    pid = fork()
    if pid == 0: os._exit(0)
    return pid
def attack():
    tried("fork", lambda: forked(os.fork))
    tried("forkpty", lambda: forked(lambda: os.forkpty()[0]))
    tried("fork in C", lambda: forked(libc.fork))
    tried("vfork", lambda: forked(libc.vfork))
    tried("clone", lambda: forked(lambda: libc.syscall(56 if os.uname().machine == "x86_64" else 220, 17, 0, 0, 0, 0)))
    tried("spawn", lambda: os.posix_spawn("/bin/true", ["true"], {}))
    tried("exec", lambda: os.execv("/bin/true", ["true"]))
    tried("execveat", lambda: libc.syscall(322 if os.uname().machine == "x86_64" else 281, -100, b"/bin/true", 0, 0, 0))
    tried("subprocess", lambda: subprocess.run(["/bin/true"]))
    tried("shell", lambda: 1 if os.system("true") == 0 else -1)
    tried("thread", lambda: threading.Thread(target=len, args=("",)).start())
    tried("bare thread", lambda: _thread.start_new_thread(len, ("",)))
    tried("executor", lambda: concurrent.futures.ThreadPoolExecutor().submit(len, ""))
    tried("setuid program", lambda: os.execv("/usr/bin/su", ["su"]))
    return done
"""
    assert gains(source) == []


BOMBS = {
    "forks": """
import os
while True:
    try: os.fork()
    except OSError: pass
""",
    "threads": """
import threading, time
while True:
    try: threading.Thread(target=time.sleep, args=(100,)).start()
    except RuntimeError: pass
""",
    "a daemon that daemonises": """
import os, time
for _ in range(10):
    try:
        if os.fork(): os._exit(0)
        os.setsid()
    except OSError: pass
while True: time.sleep(1)
""",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_stays_one_process_that_ends_with_its_time(sandbox: Sandbox, attack: Attack, name: str) -> None:
    outcome = attack(BOMBS[name], limits=type(LIMITS)(seconds=0.5))
    assert outcome.kind is Kind.TIMEOUT


def test_nothing_outlives_the_evaluation_that_tried_to_leave_it(sandbox: Sandbox, attack: Attack) -> None:
    source = """
import os
def attack():
    left = []
    for make in (os.fork, lambda: os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})):
        try: left.append(make())
        except OSError: pass
    try: os.setsid()
    except OSError: pass
    return left
"""
    assert attack(source).value == []


def test_no_other_process_can_be_signalled(sandbox: Sandbox, gains: Gains, victim: int) -> None:
    source = """
import signal
def attack(*pids):
    for pid in (*pids, -1, 0, 1, 2):
        if pid == os.getpid(): continue
        for number in (0, signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
            tried(f"kill {pid} {number}", lambda: os.kill(pid, number))
        tried(f"killpg {pid}", lambda: os.killpg(pid, 0) if pid > 0 else -1)
        tried(f"tgkill {pid}", lambda: libc.tgkill(pid, pid, 0))
        tried(f"pidfd {pid}", lambda: os.pidfd_open(pid))
        tried(f"queue {pid}", lambda: libc.sigqueue(pid, 0, 0))
        tried(f"limits {pid}", lambda: libc.prlimit(pid or -1, 7, 0, ctypes.create_string_buffer(16)))
        tried(f"priority {pid}", lambda: libc.setpriority(0, pid, 19))
    return done
"""
    assert gains(source, victim, os.getpid(), zygote(sandbox), os.getppid()) == []


def test_no_signal_comes_through_a_descriptor_that_is_ready(gains: Gains, victim: int) -> None:
    source = """
import fcntl
def attack(pid):
    reading, writing = os.pipe()
    tried("owner", lambda: fcntl.fcntl(reading, fcntl.F_SETOWN, pid))
    tried("which signal", lambda: fcntl.fcntl(reading, fcntl.F_SETSIG, 9))
    return done
"""
    assert gains(source, victim) == []


def test_no_process_can_be_traced_or_read(sandbox: Sandbox, gains: Gains, victim: int) -> None:
    source = """
def attack(*pids):
    arm = os.uname().machine == "aarch64"
    room = ctypes.create_string_buffer(64)
    for pid in pids:
        tried("attach", lambda: libc.ptrace(16, pid, 0, 0))
        tried("seize", lambda: libc.ptrace(0x4206, pid, 0, 0))
        tried("readv", lambda: libc.process_vm_readv(pid, room, 1, room, 1, 0))
        tried("writev", lambda: libc.process_vm_writev(pid, room, 1, room, 1, 0))
        tried("kcmp", lambda: libc.syscall(272 if arm else 312, pid, pid, 0, 0, 0))
        for name in ("environ", "cmdline", "maps", "mem", "status", "fd", "cwd", "root", "task"):
            tried(name, lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
            tried(name + "/", lambda: os.listdir(f"/proc/{pid}/{name}"))
            tried(name + "@", lambda: os.readlink(f"/proc/{pid}/{name}"))
    tried("traceme", lambda: libc.ptrace(0, 0, 0, 0))
    return done
"""
    assert gains(source, victim, os.getpid(), zygote(sandbox), 1) == []


def test_the_kernel_gives_no_more_than_it_must(gains: Gains) -> None:
    source = """
def attack():
    room = ctypes.create_string_buffer(256)
    calls = {"unshare user": ((272, 97), 0x10000000), "unshare mount": ((272, 97), 0x20000), "setns": ((308, 268), 3),
             "mount": ((165, 40), room), "umount": ((166, 39), b"/"), "pivot_root": ((155, 41), b"/", b"/"),
             "chroot": ((161, 51), b"/"), "bpf": ((321, 280), 0, room, 128), "io_uring": ((425, 425), 1, room),
             "keyctl": ((250, 219), 0, -3, 1), "add_key": ((248, 217), b"user", b"x", b"y", 1, -3),
             "memfd": ((319, 279), b"x", 0), "shmget": ((29, 194), 0, 4096, 0o1600),
             "semget": ((64, 190), 0, 1, 0o1600),
             "msgget": ((68, 186), 0, 0o1600), "mq_open": ((240, 180), b"/x", 0o102, 0o600, 0),
             "userfaultfd": ((323, 282), 0), "perf": ((298, 241), room, 0, -1, -1, 0), "seccomp": ((317, 277), 2, 0, 0),
             "open_by_handle": ((304, 265), 0, room, 0), "name_to_handle": ((303, 264), -100, b"/", room, room, 0),
             "setuid": ((105, 146), 0), "capset": ((126, 91), room, room), "reboot": ((169, 142), 1, 2, 3),
             "sethostname": ((170, 161), b"x", 1), "settime": ((227, 112), 0, room),
             "module": ((175, 105), room, 1, b""),
             "fsopen": ((430, 430), b"tmpfs", 0), "vmsplice": ((278, 75), 1, room, 1, 0), "personality": ((135, 92), 8),
             "inotify": ((294, 26), 0), "fanotify": ((300, 262), 0, 0), "landlock": ((444, 444), 0, 0, 1),
             "pidfd_getfd": ((438, 438), 0, 0, 0), "mlock": ((149, 228), room, 1), "quotactl": ((179, 60), 0, 0, 0, 0),
             "clone3": ((435, 435), room, 88)}
    for name, (numbers, *arguments) in calls.items():
        number = numbers[os.uname().machine == "aarch64"]
        tried(name, lambda: libc.syscall(number, *arguments))
    tried("die with nobody", lambda: libc.prctl(1, 0, 0, 0, 0))
    tried("dumpable", lambda: libc.prctl(4, 1, 0, 0, 0))
    tried("i386", lambda: libc.syscall(0x40000000 + 57))
    return done
"""
    assert gains(source) == []


def test_no_limit_can_be_raised(gains: Gains) -> None:
    source = """
import resource
def attack():
    for name in ("AS", "CPU", "FSIZE", "NOFILE", "CORE", "MEMLOCK"):
        which = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(which)[1]
        tried(name, lambda: resource.setrlimit(which, (hard, hard + 1)))
        tried(name, lambda: resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
    return done
"""
    assert gains(source) == []


def test_the_environment_holds_nothing_of_the_callers(
    sandbox: Sandbox, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hf_secret_of_the_trainer"
    monkeypatch.setenv("HF_TOKEN", secret)
    with Sandbox(sandbox.backend) as fresh:
        told = fresh.run([_job("import os\ndef attack(): return [dict(os.environ), os.environb.get(b'HF_TOKEN')]")])[0]
    assert told.kind is Kind.OK
    assert secret not in repr(told.value)
    assert set(told.value[0]) <= {
        "PATH", "HOME", "LANG", "PWD", "LC_CTYPE", "LD_BIND_NOW",
        "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
    }  # fmt: skip


ENDS = {
    "os._exit with 0": ("import os\nos._exit(0)", "It ended early with exit code 0."),
    "os._exit with 7": ("import os\nos._exit(7)", "It ended early with exit code 7."),
    "exit in C": ("import ctypes\nctypes.CDLL(None).exit(0)", "It ended early with exit code 0."),
    "sys.exit": ("import sys\nsys.exit(0)", "It ended early by calling exit(0)."),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_early_exit_is_an_error(attack: Attack, name: str) -> None:
    source, message = ENDS[name]
    outcome = attack(source)
    assert (outcome.kind, outcome.message) == (Kind.ERROR, message)


def test_closing_every_descriptor_gives_no_answer_and_no_hang(attack: Attack) -> None:
    outcome = attack("import os\nos.closerange(0, 65536)\n")
    assert outcome.kind is Kind.ERROR
    assert outcome.message.startswith("It ended early with exit code")


def test_no_descriptor_is_open_but_its_own(attack: Attack) -> None:
    source = """
import os, stat
def attack():
    found = []
    for fd in range(4096):
        try: found.append([fd, stat.S_IFMT(os.fstat(fd).st_mode)])
        except OSError: pass
    return found
"""
    kinds = attack(source).value
    assert [fd for fd, _ in kinds] == [0, 1, 2, 3]


def test_descriptors_passed_to_the_caller_are_not_taken(attack: Attack) -> None:
    source = """
import array, os, socket
def attack():
    reading, writing = os.pipe()
    channel = socket.socket(fileno=os.dup(3))
    try:
        socket.send_fds(channel, [b"x"], [reading])
    except OSError as error:
        return error.errno
"""
    assert attack(source).value is not None


def test_a_process_that_stops_itself_is_ended_with_its_time(attack: Attack) -> None:
    source = "import os, signal\ntry: os.kill(os.getpid(), signal.SIGSTOP)\nexcept OSError: pass\nwhile True: pass"
    assert attack(source, limits=type(LIMITS)(seconds=0.5)).kind is Kind.TIMEOUT


def test_each_evaluation_sees_only_itself(sandbox: Sandbox) -> None:
    if sandbox.backend is not Backend.BUBBLEWRAP:
        pytest.skip("there are no pid namespaces")
    outcomes = sandbox.run([_job("import os\ndef attack(): return [os.getpid(), os.getppid()]")] * 3)
    assert [outcome.value for outcome in outcomes] == [[1, 0]] * 3


def test_the_processes_of_this_test_are_alive(sandbox: Sandbox) -> None:
    assert alive(os.getpid())
    assert alive(zygote(sandbox))


def _job(source: str):  # type: ignore[no-untyped-def]
    from workers.sandbox.outcomes import Job

    return Job(source, "attack")
