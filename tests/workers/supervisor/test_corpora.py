"""Corpora on their way to a host, with real supervisors."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.workers.supervisor.attempts import RUN, attempt
from workers.contract.run import corpora
from workers.contract.run.episodes import CorpusSpec, EpisodeSpec, PartSpec

pytestmark = pytest.mark.processes

DOCUMENTS = b"documents as they are\n" * 50_000
SHA256 = hashlib.sha256(DOCUMENTS).hexdigest()
SEARCHES = EpisodeSpec(
    parts=(PartSpec("search", "search", {"corpus": "Towns v1"}),), corpora=(CorpusSpec("Towns", 1, SHA256, 3),)
)


def second(**more: Any) -> dict[str, Any]:
    return {"number": 2, "attempt_id": f"{RUN}-2", "episodes": SEARCHES, **more}


def test_a_corpus_lies_in_the_folder_when_the_trainer_starts_and_in_the_cache_for_the_next_run(tmp_path: Path) -> None:
    with attempt(tmp_path / "runs", spec={"episodes": SEARCHES}) as made:
        made.control.corpora[SHA256] = DOCUMENTS
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"
        assert corpora.path_in(made.folder.path, SHA256).read_bytes() == DOCUMENTS
    with attempt(tmp_path / "runs", spec=second()) as again:
        again.launch()
        assert again.wait_for_end()["reason"] == "completed"
        assert not [path for path in again.control.requests if "corpora" in path]


def test_another_host_fetches_it_again(tmp_path: Path) -> None:
    with attempt(tmp_path / "one", spec={"episodes": SEARCHES}) as made:
        made.control.corpora[SHA256] = DOCUMENTS
        made.launch()
        made.wait_for_end()
    shutil.rmtree(tmp_path / "one")
    with attempt(tmp_path / "two", spec=second()) as there:
        there.control.corpora[SHA256] = DOCUMENTS
        there.launch()
        assert there.wait_for_end()["reason"] == "completed"
        assert corpora.path_in(there.folder.path, SHA256).read_bytes() == DOCUMENTS


@pytest.mark.parametrize(("sent", "said"), [({SHA256: b"other documents"}, "Towns v1 arrived with"), ({}, "404")])
def test_a_corpus_that_is_another_one_or_gone_starts_nothing(sent: dict[str, bytes], said: str, tmp_path: Path) -> None:
    with attempt(tmp_path, spec={"episodes": SEARCHES}) as made:
        made.control.corpora = sent
        made.launch()
        ended = made.wait_for_end()
        assert (ended["reason"], said in ended["detail"]) == ("launch_failed", True)
        assert not corpora.path_in(made.folder.path, SHA256).exists()
