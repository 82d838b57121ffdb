"""A forked program ends, speaks and sees its environment as one that the interpreter has started."""

from __future__ import annotations

import signal

import pytest

from tests.trainer.preloaded import Preloaded

pytestmark = [pytest.mark.trainer, pytest.mark.processes]


def test_it_has_its_own_arguments_environment_and_input(preloaded: Preloaded) -> None:
    code = "import os, sys; print(sys.argv[1:], os.environ['COLOUR'], 'SHADE' in os.environ, sys.stdin.read())"
    preloaded.run("-c", "import os; os.environ['SHADE'] = 'dark'")
    process = preloaded.start("-c", code, "a", "b", stdin="words", env={"COLOUR": "red"})
    assert process.communicate() == ("['a', 'b'] red False words\n", "")


@pytest.mark.parametrize(
    ("code", "status", "last_words"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('a sentence')", 1, "a sentence"),
        ("raise KeyError('gone')", 1, "KeyError: 'gone'"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
    ],
)
def test_it_ends_with_its_own_status(preloaded: Preloaded, code: str, status: int, last_words: str) -> None:
    process = preloaded.start("-c", code)
    _, err = process.communicate()
    assert process.returncode == status
    assert "".join(err.splitlines()[-1:]) == last_words


def test_it_can_be_ended(preloaded: Preloaded) -> None:
    process = preloaded.start("-c", "import signal; signal.pause()")
    assert process.poll() is None
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
