"""The further datasets of a mix on their way to a host, with real supervisors."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.workers.supervisor.attempts import attempt
from workers.contract.run import mixing
from workers.contract.run.mixing import SourceSpec

pytestmark = pytest.mark.processes

ROWS = b"rows as they are\n" * 1000
SHA256 = hashlib.sha256(ROWS).hexdigest()
SOURCE = SourceSpec("words", 2, SHA256, 1000, weight=0.5)


def test_each_dataset_of_a_mix_lies_in_the_folder_when_the_trainer_starts(tmp_path: Path) -> None:
    with attempt(tmp_path / "runs", spec={"sources": (SOURCE,)}) as made:
        made.control.sources[SHA256] = ROWS
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"
        assert mixing.path_in(made.folder.path, SHA256).read_bytes() == ROWS


@pytest.mark.parametrize(
    ("sent", "said"), [({SHA256: b"others"}, "The dataset words version 2 arrived with"), ({}, "404")]
)
def test_a_dataset_that_is_another_or_gone_starts_nothing(sent: dict[str, bytes], said: str, tmp_path: Path) -> None:
    with attempt(tmp_path, spec={"sources": (SOURCE,)}) as made:
        made.control.sources = sent
        made.launch()
        ended = made.wait_for_end()
        assert (ended["reason"], said in ended["detail"]) == ("launch_failed", True)
        assert not mixing.path_in(made.folder.path, SHA256).exists()
