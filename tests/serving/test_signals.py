"""Ctrl-C ends `up`, in whatever moment it comes."""

from __future__ import annotations

import signal

import pytest

from controlplane.setup.serving.serving import signals_interrupt, uninterrupted


class Finalized:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def _lose_one_and_wait() -> None:
    with signals_interrupt():
        Finalized()  # what is raised in there goes nowhere
        signal.pause()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_comes_again() -> None:
    with pytest.raises(KeyboardInterrupt):
        _lose_one_and_wait()


def test_one_that_is_heeded_does_not() -> None:
    with signals_interrupt():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with uninterrupted(print):
            assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
