"""A model's archive from its host: sent by the supervisor from the model's files, whatever happens to the network."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import Attempt, attempt
from workers.contract.run.jobs import ARCHIVE
from workers.contract.run.spec import ModelSpec
from workers.contract.wire.names import FileName, StopMode
from workers.supervisor.reports.archive import MAX_PART_BYTES

pytestmark = pytest.mark.processes

SOURCE = "r0/1/checkpoints/checkpoint-3"


def weights(folder: Path, size: int) -> None:
    """A whole safetensors file of one tensor."""
    head = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + os.urandom(size))
    (folder / "config.json").write_text("{}")
    (folder / "optimizer.pt").write_bytes(b"pickle")


@contextmanager
def download(tmp_path: Path, size: int = 3 * MAX_PART_BYTES) -> Iterator[Attempt]:
    weights(tmp_path / "runs" / SOURCE, size)
    command = ("/usr/bin/env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "workers.trainer")
    with attempt(tmp_path, trainer_command=command) as made:
        job = {"name": "sums-step-3", "card": "# A card"}
        (tmp_path / "models/tiny/config.json").write_text("{}")
        run = dataclasses.replace(made.spec.run, kind=ARCHIVE, start_from=SOURCE, job=job)
        made.use(dataclasses.replace(made.spec, run=run))
        yield made


def result(made: Attempt) -> dict[str, object]:
    (line,) = made.control.of_kind("result")
    return dict(line["data"]["facts"])


def test_lost_answers_and_an_absent_control_plane_lose_no_byte(tmp_path: Path) -> None:
    with download(tmp_path) as made:
        made.control.refuse["archive"] = 503
        made.launch()
        wait_until(lambda: any("archive" in path for path in made.control.requests), made.why)
        made.control.stop()
        made.control.refuse.clear()
        made.control.lost_answers = 5
        made.control.start()
        assert made.wait_for_end()["reason"] == "completed"
        whole = made.control.archive
        assert result(made) == {"size": len(whole), "sha256": hashlib.sha256(whole).hexdigest()}
        assert whole.count(b"sums-step-3/") == 3
        assert b"pickle" not in whole


def test_a_refusal_ends_the_job_with_the_control_planes_words(tmp_path: Path) -> None:
    with download(tmp_path) as made:
        made.control.archive_room = 1000
        made.launch()
        ended = made.wait_for_end()
        assert (ended["reason"], ended["detail"]) == (
            "spec_refused",
            "The control plane refused the archive: There is no room.",
        )


def test_the_base_model_is_not_needed(tmp_path: Path) -> None:
    with download(tmp_path, 1000) as made:
        run = dataclasses.replace(made.spec.run, model=ModelSpec("/models/that/were/deleted"))
        made.use(dataclasses.replace(made.spec, run=run))
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"


def test_a_stop_ends_an_upload_that_waits(tmp_path: Path) -> None:
    with download(tmp_path) as made:
        made.control.refuse["archive"] = 503
        made.launch()
        wait_until((made.folder / FileName.ARCHIVE).exists, made.why)
        made.ask_to_stop(StopMode.NOW)
        assert made.wait_for_end()["reason"] == "stopped_by_user"


def test_a_model_without_safetensors_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with download(tmp_path) as made:
        (tmp_path / "runs" / SOURCE / "model.safetensors").unlink()
        made.launch()
        assert "model.safetensors is missing" in made.wait_for_end()["detail"]
        assert made.control.archive == b""
