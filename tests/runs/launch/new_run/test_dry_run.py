"""Commands and dry runs over HTTP: of a draft where it would start, and of a run as it was frozen."""

from __future__ import annotations

import errno
import io
import json
import zipfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.test import Client

from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.hardware.profile_pages.profile_yaml import read
from runs.engine.models import Run
from runs.launch.new_run import dry_run
from tests.controlplane.people import operator, viewer
from tests.datasets import parquet
from tests.runs.builders import a_run
from tests.runs.launch.new_run.launching_page import a_ready_host, a_version, sent
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.documents import from_dict

pytestmark = pytest.mark.django_db

SERVERS = {
    "rollout": "server",
    "trainer_gpus": 1,
    "server": {"count": 2, "gpus": 1, "weight_sync": "lora"},
    "environment": {"NCCL_DEBUG": "WARN"},
}
ROWS = parquet()
PROGRAMS = {"trainer": ["/env/python", "-m", "workers.trainer"], "vllm": ["/env/python", "-m", "vllm"]}


@pytest.fixture
def client(settings: Any, tmp_path: Path) -> Client:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.DATA_DIR = tmp_path
    host = a_ready_host(gpus=4)
    host.inventory |= {"programs": PROGRAMS, "versions": {"vllm": "0.31.0"}}
    host.save()
    version = a_version(sha256="0" * 64)
    version.folder.mkdir(parents=True)
    version.rows_path.write_bytes(ROWS)
    return operator()


def servers(**more: Any) -> dict[str, Any]:
    profile, _ = HardwareProfile.objects.get_or_create(name="two servers", defaults={"spec": {**SERVERS, **more}})
    return sent(profile=profile.pk, use_lora="on", host=Host.objects.get(name="box").pk)


def shown(client: Client, page: dict[str, Any]) -> str:
    return client.post("/runs/new/commands", page).content.decode()


def unpacked(answer: Any) -> dict[str, str]:
    assert answer["Content-Disposition"].startswith("attachment")
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    return {Path(name).name: archive.read(name).decode(errors="replace") for name in archive.namelist()}


def unwrapped(script: str) -> str:
    return " ".join(script.replace("\\\n", " ").split())


def test_each_process_of_a_draft_has_its_command_where_it_would_start(client):
    text = shown(client, servers())
    assert "As they would start now on box." in text
    assert text.count('<section class="command">') == 3
    devices = ("CUDA_VISIBLE_DEVICES=0 ", "CUDA_VISIBLE_DEVICES=1 ", "CUDA_VISIBLE_DEVICES=2 ")
    for part in (*devices, "NCCL_DEBUG=WARN", "--port 21001", "draft-1-vllm-2"):
        assert part in text
    assert "/env/python -m workers.trainer FOLDER" in text


def test_a_draft_that_has_to_wait_is_shown_as_on_an_idle_host(client):
    Host.objects.update(draining=True)
    text = shown(client, servers())
    assert "nothing else is running" in text
    assert "CUDA_VISIBLE_DEVICES=2 " in text


def test_a_draft_that_fits_nowhere_is_shown_all_the_same(client):
    Host.objects.all().delete()
    page = servers_without_host()
    assert "No host has the resources of this profile" in shown(client, page)
    assert "CUDA_VISIBLE_DEVICES=2 " in shown(client, page)


def servers_without_host() -> dict[str, Any]:
    profile = HardwareProfile.objects.create(name="two servers", spec=SERVERS)
    return sent(profile=profile.pk, use_lora="on")


def test_gpus_that_the_profile_names_are_shown_as_named(client):
    Host.objects.all().delete()
    named = {**SERVERS, "trainer_gpu_ids": [6]}
    profile = HardwareProfile.objects.create(name="named", spec=named)
    assert "CUDA_VISIBLE_DEVICES=6 " in shown(client, sent(profile=profile.pk, use_lora="on"))


def test_an_open_choice_is_named_in_place_of_commands(client):
    assert "Still to choose: model, hardware profile." in shown(client, sent(model="", profile=""))


def test_a_wrong_field_is_not_turned_into_commands(client):
    assert "Fix the problems that Preflight marks red." in shown(client, sent(max_completion_length="x"))


SENSELESS: list[dict[str, Any]] = [
    {"rollout": "server", "trainer_gpus": 1},
    {"rollout": "by post"},
    {"trainer_gpus": -2},
]


@pytest.mark.parametrize("spec", SENSELESS)
def test_a_profile_that_makes_no_sense_is_no_server_error(client, spec):
    broken = HardwareProfile.objects.create(name="broken", spec=spec)
    assert client.post("/runs/new/commands", sent(profile=broken.pk)).status_code == 200
    answer = client.post("/runs/new/dry-run", sent(profile=broken.pk))
    b"".join(answer)
    assert answer.status_code in (200, 422)
    assert not Run.objects.exists()


def test_a_draft_is_downloaded_with_all_that_it_needs(client):
    files = unpacked(client.post("/runs/new/dry-run", servers()))
    assert set(files) == {"run.sh", "accelerate.yaml", "spec.json", "dataset.parquet", "profile.yaml", "README.txt"}
    spec = from_dict(AttemptSpec, json.loads(files["spec.json"]))
    assert (spec.attempt_id, spec.placement.host) == ("draft-1", "box")
    assert files["dataset.parquet"] == ROWS.decode(errors="replace")
    assert "two servers" in files["profile.yaml"]
    assert "--served-model-name draft-1" in unwrapped(files["run.sh"])
    assert "the ports 21000, 21001 on loopback" in files["README.txt"]
    assert not Run.objects.exists()


def test_the_script_may_be_executed_and_nobody_else_reads_the_prompts(client):
    answer = client.post("/runs/new/dry-run", servers())
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    modes = {Path(info.filename).name: info.external_attr >> 16 & 0o777 for info in archive.infolist()}
    assert modes["run.sh"] == 0o700
    assert {mode for name, mode in modes.items() if name != "run.sh"} == {0o600}


def test_the_profile_of_a_dry_run_can_be_imported(client):
    files = unpacked(client.post("/runs/new/dry-run", servers()))
    imported = read(files["profile.yaml"].encode())
    assert not imported.wrong


def test_a_draft_that_can_not_be_launched_comes_back_with_what_was_typed(client):
    answer = client.post("/runs/new/dry-run", sent(max_completion_length="x", seed="77"))
    assert answer.status_code == 422
    page = answer.content.decode()
    assert "A dry run isn&#x27;t possible yet" in page
    assert 'value="77"' in page


def test_a_run_shows_the_commands_of_its_own_attempt(client):
    page = viewer().get(f"/runs/{a_run().pk}/spec/").content.decode()
    assert "workers.trainer FOLDER" in page
    assert '<section class="command">' in page


def test_a_run_is_downloaded_as_it_was_frozen(client):
    answer = client.post("/runs/new/", servers())
    run = Run.objects.get(pk=answer.url.strip("/").split("/")[-1])
    run.spec["start_from"] = "r1/1/checkpoints/checkpoint-2"
    run.save(update_fields=["spec"])
    HardwareProfile.objects.all().delete()
    files = unpacked(viewer().get(f"/runs/{run.pk}/dry-run"))
    assert json.loads(files["spec.json"])["run"] == run.spec
    assert f"--served-model-name {run.pk}-1" in unwrapped(files["run.sh"])
    assert "put its folder at ../../r1/1/checkpoints/checkpoint-2" in files["README.txt"]


def test_only_a_few_dry_runs_take_space_until_they_have_been_downloaded(client, monkeypatch):
    answer = client.post("/runs/new/", servers())
    run = Run.objects.get(pk=answer.url.strip("/").split("/")[-1])
    ask = partial(viewer().get, f"/runs/{run.pk}/dry-run")
    unread = [ask() for _ in range(dry_run.MAX_ARCHIVES)]
    assert "dry runs are already being downloaded" in ask(follow=True).content.decode()
    assert unpacked(unread.pop())
    assert unpacked(ask())
    monkeypatch.setattr(dry_run, "_pack", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    for _ in range(2):  # what failed counts no longer
        full = ask()
        assert (full.status_code, "The disk of the control plane is full" in full.content.decode()) == (507, True)
    for answer in unread:
        unpacked(answer)


def test_a_run_whose_dataset_file_is_gone_says_so(client):
    answer = client.post("/runs/new/", servers())
    run = Run.objects.get(pk=answer.url.strip("/").split("/")[-1])
    run.dataset_version.rows_path.unlink()
    answer = client.get(f"/runs/{run.pk}/dry-run", follow=True)
    assert "The file of dataset sums v1 is missing" in answer.content.decode()


def test_a_viewer_makes_no_commands_of_a_draft(client):
    for part in ("commands", "dry-run"):
        assert viewer().post(f"/runs/new/{part}", sent()).status_code == 403
        assert client.get(f"/runs/new/{part}").status_code == 405
