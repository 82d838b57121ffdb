"""Messages to the waiting user, and execution of an installation's programs."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import FrameType


class Failed(Exception):
    """Error for a failed installation step; the message says what to do."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM end the installation as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous_handler = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def run(argv: list[str], env: dict[str, str] | None = None) -> int:
    """Run a program that shows its own progress, and return its exit code. If an interrupt stops the wait, the program
    is stopped, too."""
    process = subprocess.Popen(argv, env=env, stdout=sys.stderr, stdin=subprocess.DEVNULL)
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def ask(argv: list[str], env: dict[str, str] | None = None) -> str | None:
    """Run a program and return its standard output, or None if it can't be run or fails."""
    try:
        result = subprocess.run(argv, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None
