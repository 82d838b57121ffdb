"""A sandbox through its life: many evaluations, many threads, and ends that nobody planned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests import disk
from tests.waiting import wait_until
from tests.workers.sandbox.conftest import BACKENDS, LIMITS, alive, descriptors, forks_of, left_of, open_or_skip, zygote
from workers.sandbox import layout, outcomes, zygote_process
from workers.sandbox.outcomes import Backend, Job, Kind, Limits, Program, SandboxUnavailable
from workers.sandbox.pool import Sandbox

pytestmark = pytest.mark.processes
ANSWER = Job("def answer(number): return number * 2", "answer", (21,))
ENDLESS = Job("while True: pass")


def test_outcomes_come_in_the_order_of_the_jobs(sandbox: Sandbox) -> None:
    jobs = [Job("def f(n):\n    if n % 3 == 0: 1 / 0\n    print(n)\n    return n", "f", (n,)) for n in range(30)]
    outcomes = sandbox.run(jobs, LIMITS)
    assert [outcome.value for outcome in outcomes] == [None if n % 3 == 0 else n for n in range(30)]
    assert [outcome.stdout for outcome in outcomes] == ["" if n % 3 == 0 else f"{n}\n" for n in range(30)]
    assert outcomes[0].message == "ZeroDivisionError: division by zero"
    assert "1 / 0" in outcomes[0].traceback


def test_two_hundred_evaluations_leave_no_descriptor_no_process_and_no_mount(sandbox: Sandbox) -> None:
    jobs: list[Job | Program] = [ANSWER, Job("1/0"), Job("import os\nos._exit(1)"), ENDLESS]
    sandbox.run(jobs[:3], LIMITS)
    pid, ours = zygote(sandbox), descriptors()
    wait_until(lambda: sleeps(pid))  # it closes what was an evaluation's after its report
    theirs = len(os.listdir(f"/proc/{pid}/fd"))
    mounted = mounts(pid)
    for _ in range(50):
        sandbox.run(jobs[:3], LIMITS)
        sandbox.test([outcomes.TestJob("def f(): return 1", ("assert f() == 1",))], LIMITS)
    sandbox.run([ENDLESS], Limits(seconds=0.1))
    assert descriptors() == ours
    wait_until(lambda: len(os.listdir(f"/proc/{pid}/fd")) == theirs)  # an evaluation ends with its report
    assert mounts(pid) == mounted
    assert left_of(pid) == []
    assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == "", "not even a zombie"


def mounts(pid: int) -> list[str]:
    """That a process sees, without the small disks of tests that run beside this one."""
    return [line for line in Path(f"/proc/{pid}/mounts").read_text().splitlines() if not line.startswith(disk.SOURCE)]


def test_threads_share_one_sandbox(sandbox: Sandbox) -> None:
    got: dict[int, list[object]] = {}

    def evaluate(number: int) -> None:
        jobs = [Job("def f(n): return n", "f", (number * 100 + each,)) for each in range(20)]
        got[number] = [outcome.value for outcome in sandbox.run(jobs, LIMITS)]

    threads = [threading.Thread(target=evaluate, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {number: [number * 100 + each for each in range(20)] for number in range(4)}


def test_a_zygote_killed_in_mid_evaluation_is_an_outcome_and_a_new_one_takes_over(one_of_each: Sandbox) -> None:
    pid = zygote(one_of_each)
    killer = threading.Thread(target=lambda: (wait_until(lambda: forks_of(pid) != []), os.kill(pid, signal.SIGKILL)))
    killer.start()
    [outcome] = one_of_each.run([ENDLESS], LIMITS)
    killer.join()
    assert (outcome.kind, outcome.trouble) == (Kind.KILLED, True)
    assert outcome.message == "The sandbox's own process ended; it was restarted."
    assert one_of_each.run([ANSWER], LIMITS)[0].value == 42
    assert zygote(one_of_each) != pid


def test_a_zygote_killed_between_evaluations_costs_none(one_of_each: Sandbox) -> None:
    pid = zygote(one_of_each)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid))
    assert one_of_each.run([ANSWER], LIMITS)[0].value == 42


def test_a_zygote_that_hangs_is_ended_with_all_its_forks(one_of_each: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.sandbox.evaluation._BACKSTOP_S", 0.2)
    pid = zygote(one_of_each)
    stopper = threading.Thread(target=lambda: (wait_until(lambda: forks_of(pid) != []), os.kill(pid, signal.SIGSTOP)))
    stopper.start()
    [outcome] = one_of_each.run([ENDLESS], Limits(seconds=1))
    stopper.join()
    assert (outcome.kind, outcome.trouble) == (Kind.KILLED, True)
    wait_until(lambda: not alive(pid))
    assert one_of_each.run([ANSWER], LIMITS)[0].value == 42


@pytest.mark.parametrize("backend", BACKENDS)
def test_closing_ends_what_runs(backend: Backend) -> None:
    sandbox = open_or_skip(backend)
    pid = zygote(sandbox)
    closer = threading.Thread(target=lambda: (wait_until(lambda: forks_of(pid) != []), sandbox.close()))
    closer.start()
    [outcome] = sandbox.run([ENDLESS], LIMITS)
    closer.join()
    assert outcome.kind is Kind.KILLED
    wait_until(lambda: not alive(pid))
    assert sandbox.run([ANSWER], LIMITS)[0].message.endswith("The sandbox was closed.")
    sandbox.close()


CALLER = """
import os, sys
sys.path.insert(0, {root!r})
from workers.sandbox.outcomes import Backend, Job, Limits
from workers.sandbox.pool import Sandbox
sandbox = Sandbox(Backend({backend!r}))
print(sandbox._zygote.pid, flush=True)
{before}
sandbox.run([Job("while True: pass")] * 2, Limits(seconds=600))
"""


def caller(backend: Backend, before: str = "", **options: object) -> subprocess.Popen[bytes]:
    code = CALLER.format(root=str(ROOT), backend=backend.value, before=before)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_left_of_a_caller_that_was_killed(backend: Backend, number: int) -> None:
    open_or_skip(backend).close()
    process = caller(backend)
    pid = first_line(process)
    wait_until(lambda: len(forks_of(pid)) > 0)
    everything = [pid, *forks_of(pid)]
    process.send_signal(number)
    process.communicate()
    wait_until(lambda: not any(alive(each) for each in everything))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_child_that_the_caller_forked_keeps_nothing_alive(backend: Backend) -> None:
    """It holds a copy of the control socket, as what is forked without Python's knowing does."""
    open_or_skip(backend).close()
    fork = "child = __import__('ctypes').PyDLL(None).fork()\n"
    child = "if child == 0:\n    os.close(1)\n    __import__('signal').pause()\nprint(child, flush=True)"
    process = caller(backend, fork + child)
    pid, left = first_line(process), first_line(process)
    wait_until(lambda: len(forks_of(pid)) > 0)
    everything = [pid, *forks_of(pid)]
    process.kill()
    process.communicate()
    try:
        wait_until(lambda: not any(alive(each) for each in everything))
    finally:
        os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_thread_that_ends_takes_no_sandbox_with_it(backend: Backend) -> None:
    opened: list[Sandbox] = []
    open_or_skip(backend).close()
    thread = threading.Thread(target=lambda: opened.append(Sandbox(backend)))
    thread.start()
    thread.join()
    with opened[0] as sandbox:
        pid = zygote(sandbox)
        assert sandbox.run([ANSWER], LIMITS)[0].value == 42
        assert zygote(sandbox) == pid


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_works_without_stdin_stdout_and_stderr(backend: Backend, tmp_path: Path) -> None:
    open_or_skip(backend).close()
    code = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
os.closerange(0, 3)
from workers.sandbox.outcomes import Backend, Job
from workers.sandbox.pool import Sandbox
with Sandbox(Backend({backend.value!r})) as sandbox:
    outcome = sandbox.run([Job("print('out')\\ndef f(): return 42", "f")])[0]
with open({str(tmp_path / "result")!r}, "w") as file:
    print(outcome.kind, outcome.value, outcome.stdout, file=file)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "result").read_text().split() == ["ok", "42", "out"]


def test_a_zygote_is_not_given_to_other_children_of_the_caller(one_of_each: Sandbox) -> None:
    zygote(one_of_each)
    shown = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True).stdout
    assert "socket" not in shown


def test_a_module_can_be_preloaded(one_of_each: Sandbox) -> None:
    with Sandbox(one_of_each.backend, preload=("decimal", "random")) as sandbox:
        source = "import sys\ndef f(): return 'decimal' in sys.modules"
        assert sandbox.run([Job(source, "f")], LIMITS)[0].value is True
        draw = Job("import random\ndef f(): return random.random()", "f")
        assert len({outcome.value for outcome in sandbox.run([draw] * 5, LIMITS)}) == 5


def test_a_module_that_is_not_there_says_so(one_of_each: Sandbox) -> None:
    with pytest.raises(SandboxUnavailable, match="No module named 'no_such_module'"):
        Sandbox(one_of_each.backend, preload=("no_such_module",))


def test_no_bubblewrap_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.sandbox.layout.bubblewrap_program", lambda: None)
    with pytest.raises(SandboxUnavailable, match="bubblewrap isn't installed"):
        zygote_process.start(Backend.BUBBLEWRAP, ())


def test_arguments_that_are_not_plain_are_an_error(sandbox: Sandbox) -> None:
    [outcome] = sandbox.run([Job("def f(x): return x", "f", (object(),))], LIMITS)
    assert outcome.kind is Kind.ERROR


def test_a_program_is_given_its_input_and_gives_its_exit_code(sandbox: Sandbox) -> None:
    source = "import sys; text = sys.stdin.read(); print(len(text)); sys.exit(3)"
    program = Program((layout.current().python, "-I", "-S", "-c", source), stdin="x" * 300_000)
    [outcome] = sandbox.run([program], LIMITS)
    assert (outcome.kind, outcome.value, outcome.stdout) == (Kind.OK, 3, "300000\n")


def test_a_program_may_start_threads_but_no_process_and_no_socket(sandbox: Sandbox) -> None:
    source = """
import os, socket, threading
thread = threading.Thread(target=print, args=("thread",))
thread.start(); thread.join()
for action in (os.fork, socket.socket, lambda: open("/etc/passwd"), lambda: os.kill(os.getppid() or -1, 0)):
    try: action(); print("through")
    except OSError: pass
"""
    program = Program((layout.current().python, "-I", "-S", "-c", source))
    [outcome] = sandbox.run([program], LIMITS)
    assert (outcome.kind, outcome.stdout) == (Kind.OK, "thread\n"), outcome


def test_a_program_that_is_not_there_is_an_error(sandbox: Sandbox) -> None:
    [outcome] = sandbox.run([Program(("/usr/bin/no-such-program",))], LIMITS)
    assert outcome.kind is Kind.ERROR
    assert "No such file" in outcome.message


def test_a_program_that_reads_no_input_is_not_waited_for(sandbox: Sandbox) -> None:
    program = Program((layout.current().python, "-I", "-S", "-c", "print('done')"), stdin="x" * 300_000)
    assert sandbox.run([program], LIMITS)[0].stdout == "done\n"


UNPRIVILEGED = """
import sys
sys.path.insert(0, {root!r})
from workers.sandbox.outcomes import Backend, Job, TestJob
from workers.sandbox.pool import Sandbox
from workers.sandbox import selftest
for backend in selftest.ORDER:
    print(backend, selftest.lacks(backend) or "holds")
"""


def test_a_user_who_is_not_root_is_held_as_well(tmp_path: Path) -> None:
    """By an interpreter that this user can read, with a copy of the package where it can be read."""
    python = "/usr/bin/python3"
    if os.geteuid() != 0 or not Path(python).exists() or not all(_holds_as_root()):
        pytest.skip("needs root, to become somebody else, and a system's Python")
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "workers").mkdir()
        shutil.copy(ROOT / "workers" / "__init__.py", Path(folder) / "workers")
        shutil.copytree(ROOT / "workers" / "sandbox", Path(folder) / "workers" / "sandbox")
        done = subprocess.run(
            [python, "-B", "-c", UNPRIVILEGED.format(root=folder)],
            user=65534, group=65534, extra_groups=[], cwd="/", env={"PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert done.stdout.splitlines() == [f"{backend} holds" for backend in BACKENDS], done.stdout


def _holds_as_root() -> list[bool]:
    from workers.sandbox import selftest

    return [not why for why in selftest.probe().tried.values()]


def first_line(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(process.stdout.fileno(), 1)
    return int(line)


def sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
