"""The allow-list of system calls as the kernel reads it, on machines of both kinds, by walking the program here."""

from __future__ import annotations

import errno
import os
import struct
from types import SimpleNamespace

import pytest

from workers.sandbox.isolation import seccomp
from workers.sandbox.isolation.syscall_numbers import READ_CALLS, SPECIAL, WRITE_CALLS

ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, REFUSED, KILLED = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
NOT_THERE, NO_ATTRIBUTES = 0x00050000 | errno.ENOSYS, 0x00050000 | errno.EOPNOTSUPP


@pytest.fixture(params=ARCHES)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=request.param))
    return str(request.param)


def answer(code: bytes, machine: str, call: str | int, *arguments: int) -> int:
    """What the filter says of one call."""
    number = call if isinstance(call, int) else (READ_CALLS | WRITE_CALLS | SPECIAL)[call][machine == "aarch64"]
    assert number is not None
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, ARCHES[machine], 0, *padded)
    place = value = 0
    while True:
        kind, yes, no, operand = struct.unpack_from("<HBBI", code, 8 * place)
        place += 1
        if kind == 0x20:
            (value,) = struct.unpack_from("<I", data, operand)
        elif kind == 0x06:
            return int(operand)
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[kind]
            place += yes if holds else no


def test_what_reading_takes_is_allowed_and_what_changes_files_only_where_it_may(machine: str) -> None:
    plain, writing = seccomp.program(), seccomp.program(writes=True)
    column = machine == "aarch64"
    for table, expected in ((READ_CALLS, ALLOWED), (WRITE_CALLS, REFUSED)):
        for numbers in table.values():
            if numbers[column] is not None:
                assert answer(plain, machine, numbers[column]) == expected
                assert answer(writing, machine, numbers[column]) == ALLOWED


def test_every_number_that_is_not_named_is_refused(machine: str) -> None:
    named = {numbers[machine == "aarch64"] for numbers in (READ_CALLS | WRITE_CALLS | SPECIAL).values()}
    program = seccomp.program(writes=True, alone=True)
    assert {answer(program, machine, number) for number in range(700) if number not in named} == {REFUSED}


ARGUMENTS = [
    ("fcntl", (0, 3), ALLOWED),
    ("fcntl", (0, 6), REFUSED),
    ("fcntl", (0, 8), REFUSED),
    ("fcntl", (0, 10), REFUSED),
    ("ioctl", (0, 0x5421), ALLOWED),
    ("ioctl", (0, 0x5412), REFUSED),
    ("prctl", (15,), ALLOWED),
    ("prctl", (1,), REFUSED),
    ("prlimit64", (0,), ALLOWED),
    ("prlimit64", (7,), REFUSED),
    ("socketpair", (1,), ALLOWED),
    ("socketpair", (2,), REFUSED),
    ("getsockopt", (3, 1, 4), ALLOWED),
    ("getsockopt", (3, 1, 17), REFUSED),
    ("getsockopt", (3, 1, 77), REFUSED),
    ("sendto", (3, 1, 1, 0, 0), ALLOWED),
    ("sendto", (3, 1, 1, 0, 0x7FFF12345678), REFUSED),
    ("sendto", (3, 1, 1, 0, 0x7FFF00000000), REFUSED),
    ("kill", (1,), REFUSED),
    ("clone", (0x00010000,), REFUSED),
    ("clone3", (), NOT_THERE),
    ("execve", (), REFUSED),
    ("getxattr", (), NO_ATTRIBUTES),
]


@pytest.mark.parametrize(("call", "arguments", "expected"), ARGUMENTS)
def test_some_calls_depend_on_their_arguments(
    machine: str, call: str, arguments: tuple[int, ...], expected: int
) -> None:
    assert answer(seccomp.program(), machine, call, *arguments) == expected


def test_only_where_files_may_change_can_they_be_locked(machine: str) -> None:
    writing = seccomp.program(writes=True)
    assert [answer(writing, machine, "fcntl", 0, command) for command in (5, 6, 7, 8)] == [ALLOWED] * 3 + [REFUSED]
    assert answer(writing, machine, {"x86_64": 73, "aarch64": 32}[machine]) == REFUSED  # flock


def test_alone_in_a_pid_namespace_it_may_signal_itself(machine: str) -> None:
    alone = seccomp.program(alone=True)
    assert [answer(alone, machine, call, 1) for call in ("kill", "tgkill")] == [ALLOWED] * 2
    assert [answer(alone, machine, "kill", pid) for pid in (0, 2, 0xFFFFFFFF)] == [REFUSED] * 3


def test_a_program_may_have_threads_and_become_another_but_fork_nothing(machine: str) -> None:
    program = seccomp.program(executes=True)
    assert answer(program, machine, "execve") == ALLOWED
    assert answer(program, machine, "clone", 0x003D0F00) == ALLOWED  # what pthread_create asks for
    assert answer(program, machine, "clone", 0x11) == REFUSED
    assert answer(program, machine, "clone", 0x00010000 | 0x10000000) == REFUSED


def test_calls_of_another_kind_of_machine_end_the_process(machine: str) -> None:
    other = next(name for name in ARCHES if name != machine)
    assert answer(seccomp.program(), other, 0) == KILLED


def test_the_second_table_of_intel_is_refused(machine: str) -> None:
    assert answer(seccomp.program(), machine, 0x40000000) == REFUSED


def test_a_machine_without_a_table_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    with pytest.raises(seccomp.Unsupported, match="riscv64"):
        seccomp.program()
