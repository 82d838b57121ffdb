"""What of a log is sent: its head, while somebody watches the newest stretch, at the end its tail; each byte once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.fake_control import TOKEN, FakeControl
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import QUICK, RUN, attempt
from workers.contract.wire.names import LOG_LEFT_OUT, FileName
from workers.host import reaper
from workers.settings import HostSettings
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.reports.control import Control
from workers.supervisor.reports.logs import MIN_WINDOW, TOO_LONG_NOTE, LogUploader

CAP = 100
BUDGET = 30_000
SETTINGS = replace(
    HostSettings(runs_dir=Path("/nowhere"), control_url="http://127.0.0.1:1", **QUICK),
    log_cap_bytes=CAP,
    log_live_bytes=BUDGET,
)
HEAD = b"H" * (CAP - 1) + b"\n"
GAP = re.compile(rb"\[(\d+) bytes left out here%s\n" % re.escape(LOG_LEFT_OUT.encode()))
LINE = b"line %06d says this and that\n"


class Log:
    """The trainer's log on a host, and what the control plane has of it."""

    def __init__(self, folder: AttemptFolder, control: FakeControl, client: Control) -> None:
        self.folder = folder
        self.control = control
        self.client = client
        self.path = folder.log("trainer")
        self.watched = True
        self.now = 0.0
        self.lines = 0
        self.uploader = self.sender()

    def sender(self, **changes: object) -> LogUploader:
        settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
        return LogUploader("a", self.folder, self.client, settings, watched=lambda: self.watched, hold=lambda: False)

    def write(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def write_lines(self, count: int) -> None:
        self.write(b"".join(LINE % number for number in range(self.lines, self.lines + count)))
        self.lines += count

    def tick(self) -> None:
        """Long enough after the last one that a pause between two windows is over."""
        self.now += 10_000
        self.uploader.tick(self.now)

    def end(self) -> None:
        self.uploader.close()
        while not self.uploader.drained:
            self.tick()

    @property
    def stored(self) -> bytes:
        return self.control.logs.get("trainer", b"")

    @property
    def gaps(self) -> list[int]:
        return [int(count) for count in GAP.findall(self.stored)]

    def is_the_file(self) -> bool:
        return is_the_file(self.stored, self.path.read_bytes())


def is_the_file(stored: bytes, file: bytes) -> bool:
    """With as many bytes left out at each line that says so as it says."""
    at, words = 0, [*GAP.split(stored.replace(TOO_LONG_NOTE, b"")), b"0"]
    for kept, count in zip(words[::2], words[1::2], strict=True):
        # A line that was cut ends before the words.
        kept = kept if file.startswith(kept, at) else kept.removesuffix(b"\n")
        if not file.startswith(kept, at):
            return False
        at += len(kept) + int(count)
    return at == len(file)


@pytest.fixture
def control() -> Iterator[FakeControl]:
    made = FakeControl().start()
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path, control: FakeControl) -> Iterator[Log]:
    folder = AttemptFolder(tmp_path)
    folder.create()
    client = Control(url=control.url, token=TOKEN, timeout_s=5)
    made = Log(folder, control, client)
    yield made
    made.uploader.release()
    client.close()


@pytest.fixture
def past_head(log: Log) -> Log:
    log.write(HEAD)
    log.tick()
    return log


def test_of_a_long_log_head_and_tail_are_sent_with_a_line_between(log: Log) -> None:
    log.watched = False
    log.write(b"H" * 100 + b"m" * 5000 + b"T" * 100)
    log.tick()
    log.tick()
    assert log.stored == b"H" * 100
    log.end()
    assert log.stored == b"H" * 100 + b"\n[5000 bytes left out here; the host has the whole file]\n" + b"T" * 100


def test_logs_of_an_unwatched_run_are_gathered(log: Log) -> None:
    log.watched = False
    log.uploader = log.sender(log_batch_s=10.0)
    log.write(b"one")
    log.uploader.tick(100.0)
    log.write(b"two")
    log.uploader.tick(105.0)
    assert log.stored == b"one"
    log.uploader.tick(110.0)
    assert log.stored == b"onetwo"


def test_a_log_that_grows_slowly_is_followed_without_a_gap(past_head: Log) -> None:
    for _ in range(20):
        past_head.write_lines(3)
        past_head.tick()
        assert past_head.stored == past_head.path.read_bytes()


def test_of_a_burst_the_newest_lines_come_from_a_lines_start_on(past_head: Log) -> None:
    past_head.write_lines(1000)
    past_head.tick()
    assert past_head.is_the_file()
    [_, _, newest] = GAP.split(past_head.stored)
    assert MIN_WINDOW / 2 < len(newest) <= MIN_WINDOW
    assert newest.startswith(b"line ")


def test_a_line_longer_than_a_window_is_cut(past_head: Log) -> None:
    past_head.write(b"x" * 10 * MIN_WINDOW)
    past_head.tick()
    assert past_head.gaps == [9 * MIN_WINDOW]
    assert past_head.is_the_file()


def test_between_two_windows_is_a_pause_that_a_slow_log_does_not_feel(past_head: Log) -> None:
    past_head.write_lines(1000)
    past_head.tick()
    past_head.write_lines(1000)
    assert past_head.uploader.tick(past_head.now + 10.0) > 0
    assert len(past_head.gaps) == 1
    past_head.tick()
    past_head.write(b"a word\n")
    past_head.tick()
    past_head.write(b"another\n")
    past_head.uploader.tick(past_head.now + 10.0)
    assert past_head.stored.endswith(b"a word\nanother\n")


def test_past_the_head_nothing_is_sent_while_nobody_watches(past_head: Log) -> None:
    past_head.watched = False
    past_head.write_lines(1000)
    past_head.tick()
    assert past_head.stored == HEAD
    past_head.watched = True
    past_head.tick()
    assert len(past_head.gaps) == 1
    assert past_head.is_the_file()


def test_little_that_was_written_while_nobody_watched_leaves_no_gap(past_head: Log) -> None:
    past_head.watched = False
    past_head.write_lines(3)
    past_head.tick()
    past_head.watched = True
    past_head.tick()
    assert past_head.stored == past_head.path.read_bytes()


def test_the_budget_bounds_what_is_stored_and_its_end_is_said_once(past_head: Log) -> None:
    while TOO_LONG_NOTE not in past_head.stored:
        past_head.write_lines(1000)
        past_head.tick()
    said = past_head.stored
    assert CAP + BUDGET - 2 * MIN_WINDOW < len(said) <= CAP + BUDGET
    past_head.write_lines(1000)
    past_head.tick()
    assert past_head.stored == said
    past_head.end()
    assert past_head.stored.count(TOO_LONG_NOTE) == 1
    assert past_head.is_the_file()


def test_without_a_budget_the_log_says_that_it_is_not_followed(log: Log) -> None:
    log.uploader = log.sender(log_live_bytes=0)
    log.write(HEAD + b"more\n")
    log.tick()
    log.tick()
    assert log.stored == HEAD + TOO_LONG_NOTE
    log.end()
    assert log.stored == HEAD + TOO_LONG_NOTE + b"more\n"


@pytest.mark.parametrize("lines", [0, 1, 3, 4, 1000])
def test_the_tail_joins_what_was_sent_live_without_repeating_a_byte(past_head: Log, lines: int) -> None:
    past_head.write_lines(1000)
    past_head.tick()
    past_head.write_lines(lines)
    past_head.end()
    assert past_head.is_the_file()
    assert len(past_head.gaps) == 1 + (lines * len(LINE % 0) > CAP)


def test_an_answer_that_is_lost_in_a_window_changes_nothing(past_head: Log, control: FakeControl) -> None:
    past_head.write_lines(1000)
    past_head.tick()
    past_head.write_lines(20)
    control.lost_answers = 1
    past_head.tick()
    past_head.write_lines(1000)  # far more than a window: but what was promised comes first
    past_head.tick()
    assert past_head.stored.endswith(LINE % 1019)
    past_head.tick()
    assert past_head.is_the_file()
    assert len(past_head.gaps) == 2


def test_an_answer_that_is_lost_with_the_words_of_a_gap_changes_nothing(past_head: Log, control: FakeControl) -> None:
    past_head.write_lines(1000)
    control.lost_answers = 1
    past_head.tick()
    past_head.write_lines(1000)
    past_head.end()
    assert past_head.is_the_file()
    assert len(past_head.gaps) == 2


@pytest.mark.parametrize("lost", [0, 1])
def test_a_reaper_goes_on_where_the_supervisor_was(past_head: Log, control: FakeControl, lost: int) -> None:
    for _ in range(3):
        past_head.write_lines(1000)
        past_head.tick()
    past_head.write_lines(1000)
    control.lost_answers = lost
    past_head.tick()
    past_head.uploader.release()
    past_head.uploader = past_head.sender()
    past_head.write_lines(1000)
    past_head.end()
    assert past_head.is_the_file()
    assert len(past_head.gaps) == 5


def test_a_second_reaper_repeats_nothing(past_head: Log) -> None:
    past_head.write_lines(1000)
    past_head.end()
    stored = past_head.stored
    past_head.uploader.release()
    past_head.uploader = past_head.sender()
    past_head.end()
    assert past_head.stored == stored


def test_a_gap_that_was_written_down_and_not_sent_counts_for_nobody(past_head: Log, control: FakeControl) -> None:
    control.refuse["trainer"] = 503
    past_head.write_lines(1000)
    past_head.tick()
    del control.refuse["trainer"]
    past_head.uploader.release()
    past_head.uploader = past_head.sender()
    past_head.write_lines(1000)
    past_head.end()
    assert past_head.is_the_file()
    assert len(past_head.gaps) == 1


def test_a_control_plane_that_lost_what_it_had_gets_it_again(past_head: Log, control: FakeControl) -> None:
    for _ in range(3):
        past_head.write_lines(1000)
        past_head.tick()
    control.logs["trainer"] = past_head.stored[: CAP + 300]
    past_head.write(b"on\n")
    past_head.end()
    assert past_head.is_the_file()


def test_a_file_that_was_cut_off_ends_no_thread(past_head: Log) -> None:
    past_head.write_lines(1000)
    past_head.tick()
    stored = past_head.stored
    past_head.path.write_bytes(b"short\n")
    past_head.tick()
    past_head.end()
    assert past_head.stored == stored


def test_where_a_gap_cannot_be_written_down_only_the_end_is_sent(past_head: Log) -> None:
    (past_head.folder / FileName.LOG_PARTS).mkdir()
    past_head.write_lines(1000)
    past_head.tick()
    assert past_head.stored == HEAD
    past_head.end()
    assert past_head.is_the_file()
    assert len(past_head.gaps) == 1


@pytest.mark.processes
def test_a_run_is_followed_past_the_head_and_its_log_goes_on_after_the_supervisor(tmp_path: Path) -> None:
    limits = {"log_cap_bytes": CAP, "log_live_bytes": BUDGET}
    with attempt(tmp_path, trainer="noise:10000,forever", **limits) as made:
        logs = made.control.logs
        made.control.watched = True
        made.launch()
        wait_until(lambda: GAP.search(logs.get("trainer", b"")), made.why)
        made.kill_supervisor()
        assert reaper.reap(RUN, 1, TOKEN, made.settings) is True
        for name in ("trainer", "supervisor"):
            assert is_the_file(logs[name], made.folder.log(name).read_bytes())
