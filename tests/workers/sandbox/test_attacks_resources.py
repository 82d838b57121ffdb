"""Programs that take more time, memory, disk or output than they may have: each is stopped, and said to be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.workers.sandbox.conftest import LIMITS
from workers.sandbox.outcomes import Backend, Job, Kind, Limits, Outcome
from workers.sandbox.pool import Sandbox

Attack = Callable[..., Outcome]
pytestmark = pytest.mark.processes
MEMORY = (LIMITS.memory_mb + 1) << 20
"""Besides the limit, what lies free in the memory that the zygote holds already."""
SHORT = Limits(seconds=0.5, memory_mb=128)

ENDLESS = {
    "a loop": "while True: pass",
    "sleep": "import time\ntime.sleep(10**6)",
    "one operation in C": "10 ** 10 ** 8",
    "a regular expression": "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    "every signal caught": """
import signal
for number in range(1, 65):
    try: signal.signal(number, lambda *a: None)
    except (OSError, ValueError): pass
while True:
    try:
        while True: pass
    except BaseException: continue
""",
    "every signal blocked": """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
signal.setitimer(signal.ITIMER_REAL, 0)
while True: pass
""",
    "an iterator without end": "sum(iter(int, 1))",
    "a repr without end": """
class Endless:
    def __repr__(self):
        while True: pass
def attack(): return repr(Endless())
""",
    "a message without end": """
class Endless(Exception):
    def __str__(self):
        while True: pass
raise Endless
""",
    "an exit that is caught": """
while True:
    try: raise SystemExit
    except SystemExit: pass
""",
    "its own answer forged first": """
import os
from workers.sandbox.messages import pack
os.write(3, pack({"kind": "ok", "value": 1, "message": "", "traceback": ""}))
while True: pass
""",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_ended(attack: Attack, name: str) -> None:
    outcome = attack(ENDLESS[name], limits=SHORT)
    assert outcome.kind is Kind.TIMEOUT
    assert outcome.message == "It took longer than 0.5 s."


GREEDY = {
    "one huge allocation": "bytearray(1 << 40)",
    "one allocation beyond the limit": "x = bytearray(400 << 20)",
    "many small ones": "held = []\nwhile True: held.append('x' * 1000 + str(len(held)))",
    "a list that doubles": "held = [0]\nwhile True: held += held",
    "a dict that grows": "held = {}\nwhile True: held[len(held)] = [None] * 100",
    "anonymous maps": "import mmap\nheld = []\nwhile True: held.append(mmap.mmap(-1, 1 << 20))",
}


@pytest.mark.parametrize("name", GREEDY)
def test_memory_ends_at_the_limit(attack: Attack, name: str) -> None:
    outcome = attack(GREEDY[name])
    assert outcome.kind in (Kind.MEMORY, Kind.ERROR), outcome
    assert "MemoryError" in outcome.message or "Cannot allocate memory" in outcome.message


def test_memory_that_is_caught_and_asked_for_again_never_goes_beyond_the_limit(attack: Attack) -> None:
    source = """
def attack():
    held = []
    for size in (1 << 20, 1 << 16, 1 << 12):
        try:
            while True: held.append(bytearray(size))
        except MemoryError: pass
    total = sum(map(len, held))
    del held
    return total
"""
    outcome = attack(source)
    assert outcome.kind in (Kind.MEMORY, Kind.OK)
    assert outcome.kind is Kind.MEMORY or outcome.value <= MEMORY


def test_memory_in_c_ends_at_the_limit(attack: Attack) -> None:
    source = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def attack():
    total = 0
    while (place := libc.malloc(1 << 20)):
        ctypes.memset(place, 1, 1 << 20)
        total += 1 << 20
    return total
"""
    outcome = attack(source)
    assert outcome.kind in (Kind.OK, Kind.MEMORY)
    assert outcome.kind is Kind.MEMORY or outcome.value <= MEMORY


DEEP = {
    "recursion": ("def f(): f()\nf()", {Kind.ERROR}),
    "recursion without Python's limit": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", {Kind.MEMORY, Kind.KILLED, Kind.ERROR}
    ),
    "recursion in C": (
        "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)",
        {Kind.MEMORY, Kind.KILLED},
    ),
    "a source that nests": ("x = " + "(" * 5000 + ")" * 5000, {Kind.ERROR, Kind.MEMORY, Kind.KILLED}),
    "a value that nests": (
        "def attack():\n    x = []\n    for _ in range(10**5): x = [x]\n    return x", {Kind.ERROR, Kind.KILLED}
    ),
    "a segmentation fault": ("import ctypes\nctypes.string_at(0)", {Kind.KILLED}),
    "an abort": ("import os\nos.abort()", {Kind.KILLED}),
}  # fmt: skip


@pytest.mark.parametrize("name", DEEP)
def test_what_breaks_the_interpreter_ends_only_its_own(attack: Attack, name: str) -> None:
    source, kinds = DEEP[name]
    assert attack(source, limits=Limits(seconds=60, memory_mb=128)).kind in kinds


FLOODS = {
    "stdout by print": ("while True: print('x' * 1000)", "stdout"),
    "stderr by print": ("import sys\nwhile True: print('x' * 1000, file=sys.stderr)", "stderr"),
    "stdout without Python": ("import os\nwhile True: os.write(1, b'x' * 65536)", "stdout"),
    "stderr without Python": ("import os\nwhile True: os.write(2, b'x' * 65536)", "stderr"),
    "one huge line": ("import sys\nsys.stdout.write('x' * (32 << 20))", "stdout"),
    "a flood that ignores errors": (
        "import os\nwhile True:\n    try: os.write(1, b'x' * 65536)\n    except OSError: pass", "stdout"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_output_is_cut_at_its_limit(attack: Attack, name: str) -> None:
    source, stream = FLOODS[name]
    outcome = attack(source)
    assert outcome.kind is Kind.OUTPUT
    assert outcome.message == f"It wrote more than {LIMITS.output_bytes:,} bytes to {stream}."
    assert len(getattr(outcome, stream)) == LIMITS.output_bytes


def test_output_up_to_the_limit_is_kept_whole(attack: Attack) -> None:
    outcome = attack(f"print('x' * {LIMITS.output_bytes}, end='')")
    assert (outcome.kind, outcome.stdout) == (Kind.OK, "x" * LIMITS.output_bytes)


def test_a_value_beyond_its_limit_is_refused(attack: Attack) -> None:
    outcome = attack("def attack(): return 'x' * (16 << 20)")
    assert outcome.kind is Kind.ERROR
    assert "are allowed" in outcome.message


def test_an_answer_that_announces_gigabytes_is_not_waited_for(attack: Attack) -> None:
    outcome = attack("import os, time\nos.write(3, b'\\xff\\xff\\xff\\xff' + b'x' * 1000)\ntime.sleep(1000)")
    assert outcome.kind is Kind.ERROR
    assert "are allowed" in outcome.message


FILL = """
import os
def attack(files, sparse):
    written = made = 0
    try:
        for number in range(files):
            with open(f"fill-{number}", "wb", 0) as file:
                made += 1
                if sparse:
                    file.seek(1 << 40)
                while written < (64 << 20):
                    written += file.write(b"x" * 65536)
                    if files > 1: break
    except OSError: pass
    used = sum(os.stat(name).st_blocks * 512 for name in os.listdir(".")) if made else 0
    return [written, made, used]
"""


@pytest.mark.parametrize(("files", "sparse"), [(1, False), (4000, False), (1, True)])
def test_a_disk_is_filled_up_to_its_limit_and_no_further(attack: Attack, files: int, sparse: bool) -> None:
    outcome = attack(FILL, files, sparse)
    assert outcome.kind is Kind.OK, outcome
    assert outcome.value[2] <= LIMITS.disk_mb << 20
    assert outcome.value[0] <= LIMITS.disk_mb << 20


def test_what_one_evaluation_writes_the_next_never_sees(sandbox: Sandbox) -> None:
    if sandbox.backend is not Backend.BUBBLEWRAP:
        pytest.skip("nothing can be written at all")
    see = Job("import os\ndef look():\n    open('left', 'w').write('x')\n    return sorted(os.listdir('.'))", "look")
    assert [outcome.value for outcome in sandbox.run([see, see, see], LIMITS)] == [["left"]] * 3


def test_nothing_can_be_written_where_the_limit_is_none(attack: Attack) -> None:
    source = "def attack():\n    try: open('x', 'w')\n    except OSError as error: return error.errno"
    assert attack(source, limits=Limits(disk_mb=0)).value is not None


def test_ten_megabytes_of_source_are_run(attack: Attack) -> None:
    line = f"x = '{'y' * 94}'\n"
    source = line * (10 * 1024 * 1024 // 100 + 1) + "def attack(): return len(x) - 93\n"
    assert len(source) > 10 * 1024 * 1024
    outcome = attack(source, limits=Limits(seconds=120, memory_mb=4096))
    assert (outcome.kind, outcome.value) == (Kind.OK, 1)


def test_ten_megabytes_of_source_in_too_little_memory_are_an_outcome_like_any_other(attack: Attack) -> None:
    outcome = attack("x = 1\n" * (10 * 1024 * 1024 // 6), limits=Limits(seconds=60, memory_mb=16))
    assert outcome.kind in (Kind.MEMORY, Kind.KILLED, Kind.ERROR)


STRANGE = {
    "NUL bytes": "x = 1\0",
    "NUL in a string": "x = 'a\0b'",
    "lone surrogates": "x = '\ud800'",
    "an encoding that isn't": "# coding: no-such-encoding\nx = = 1",
    "a tab in place of spaces": "if 1:\n        x = 1\n\ty = 2",
    "no end": "def f(:",
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_source_that_is_none_is_an_error_with_its_reason(attack: Attack, name: str) -> None:
    outcome = attack(STRANGE[name])
    assert outcome.kind is Kind.ERROR
    assert "Error" in outcome.message
