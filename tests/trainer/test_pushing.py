"""Pushes by the real huggingface_hub to a fake hub: what arrives, what stays at home, and what a failure leaves."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.fakes.fake_hub import FakeHub
from tests.fakes.fake_hub_pushes import Account
from tests.trainer import builders
from tests.trainer.test_training import of_kind
from tests.waiting import wait_until
from workers.contract.run.jobs import PUSH
from workers.contract.stack import commands as stack
from workers.contract.wire.names import FileName
from workers.settings import HostSettings
from workers.supervisor import commands
from workers.trainer.configuration import spec as specs

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

WEIGHTS = os.urandom(3_000_000)
MODEL = {
    "model.safetensors": WEIGHTS,
    "config.json": b'{"model_type": "qwen2"}',
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b'{"name_or_path": "/secret/tiny", "eos_token": "x"}',
    "chat_template.jinja": b"{{ messages }}",
}
OTHERS = ("optimizer.pt", "rng_state.pth", "training_args.bin", "trainer_state.json", "merged_from.json", "README.md")
CARD = '---\nlibrary_name: "transformers"\n---\n\n# Ours\n'
Push = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.accounts["right"] = Account("olga", orgs=("Org",))
        yield hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the push's attempt, beside a run with a checkpoint."""
    model, base = tmp_path / "r0/1/checkpoints/checkpoint-2", tmp_path / "tiny"
    model.mkdir(parents=True)
    base.mkdir()
    for name, content in {**MODEL, **dict.fromkeys(OTHERS, b"{}")}.items():
        (model / name).write_bytes(content)
    return tmp_path / "r1/1"


@pytest.fixture
def push(trainer_python: Path, hub: FakeHub, folder: Path) -> Iterator[Push]:
    """push(token="right", add=True): a push to Org/Model, in the environment that a host gives it."""
    started: list[subprocess.Popen[str]] = []

    def run(token: str = "right", hub_url: str = hub.url, **settings: Any) -> subprocess.Popen[str]:
        job = {"repository": "Org/Model", "card": CARD, "base": "tiny", **settings}
        start = {"kind": PUSH, "start_from": "r0/1/checkpoints/checkpoint-2", "job": job}
        builders.attempt_folder(folder, model=folder.parents[1] / "tiny", run=start)
        host = HostSettings(folder.parents[1], "http://127.0.0.1:9", trainer_python=str(trainer_python))
        source = {**os.environ, "HF_ENDPOINT": hub_url, "HF_HUB_OFFLINE": "1", "HF_TOKEN": "of the host"}
        secrets = {"HF_TOKEN": token, "GRPO_SECRET_JUDGE": "key"}
        env = commands.trainer_environment(builders.spec_of(folder), host, source, secrets)
        assert "GRPO_SECRET_JUDGE" not in env
        argv = stack.trainer_argv(folder, commands.programs(host))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(argv, cwd=ROOT, env=env, **pipes))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def succeeded(process: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    """The facts of its result."""
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err[-3000:]
    facts: dict[str, Any] = of_kind(folder, "result")[-1]["data"]["facts"]
    return facts


def refused(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == specs.EXIT_SPEC, err[-3000:]
    assert "right" not in out
    return err.strip().splitlines()[-1]


def test_a_model_and_its_card_arrive_in_one_commit_and_nothing_else(push: Push, hub: FakeHub, folder: Path) -> None:
    facts = succeeded(push(), folder)
    there = hub.repositories["Org/Model"]
    assert there.private
    assert set(there.files) == {*MODEL, "README.md", ".gitattributes"}
    assert (there.files["model.safetensors"], there.files["README.md"]) == (WEIGHTS, CARD.encode())
    assert (facts["url"], facts["commit"]) == (f"{hub.url}/Org/Model", there.commit)
    assert json.loads(there.files["tokenizer_config.json"]) == {"name_or_path": "tiny", "eos_token": "x"}
    assert [line["data"] for line in of_kind(folder, "training")] == [{"max_steps": 4, "step": 0}]


def test_a_repository_that_exists_is_added_to_only_if_that_is_asked_for(push: Push, hub: FakeHub, folder: Path) -> None:
    hub.add("Org/Model", {"notes.txt": b"of somebody"})
    assert "already has this repository: push again with “Add to the existing repository”" in refused(push())
    assert set(hub.repositories["Org/Model"].files) == {"notes.txt"}
    succeeded(push(add=True), folder)
    assert {"notes.txt", "model.safetensors"} < set(hub.repositories["Org/Model"].files)


def test_adding_to_a_repository_that_does_not_exist_creates_none(push: Push, hub: FakeHub) -> None:
    assert "There is no repository Org/Model" in refused(push(add=True))
    assert not hub.repositories


@pytest.mark.parametrize(
    ("account", "words"),
    [
        (None, "doesn't accept the stored token: it has expired or been revoked"),
        (Account("olga", orgs=("Org",), role="read"), "is read-only"),
        (Account("olga"), "is not a member of Org, or"),
        (Account("olga", orgs=("Org",), creates=False), "may not create Org/Model: it needs write access there"),
        (Account("olga", orgs=("Org",), stores=False), "The address has expired"),
        (Account("olga", orgs=("Org",), commits=False), "Private repository storage limit reached"),
    ],
    ids=["expired", "reader", "no such org", "barred", "cut", "full"],
)
def test_what_the_hub_refuses_is_said_and_leaves_nothing(
    account: Account | None, words: str, push: Push, hub: FakeHub
) -> None:
    hub.accounts = {"right": account} if account else {}
    assert words in refused(push())
    assert not hub.repositories


def test_a_repository_that_can_t_be_deleted_again_is_named(push: Push, hub: FakeHub) -> None:
    hub.accounts["right"] = Account("olga", orgs=("Org",), commits=False, deletes=False)
    assert "Org/Model was created and is still empty" in refused(push())


def test_a_card_whose_head_is_no_yaml_is_refused_before_anything_is_uploaded(push: Push, hub: FakeHub) -> None:
    assert "Invalid metadata in README.md" in refused(push(card="---\na: [\n---\n"))
    assert not hub.uploaded
    assert not hub.repositories


def test_a_hub_that_can_t_be_reached_is_said(push: Push) -> None:
    assert "http://127.0.0.1:9 can't be reached from this host" in refused(push(hub_url="http://127.0.0.1:9"))


def test_a_stop_in_mid_upload_ends_it_and_deletes_what_it_has_created(push: Push, hub: FakeHub, folder: Path) -> None:
    hub.accounts["right"] = Account("olga", orgs=("Org",), bytes_per_s=2_000_000)
    weights = folder.parents[1] / "r0/1/checkpoints/checkpoint-2/model.safetensors"
    weights.write_bytes(bytes(20_000_000))  # more than the kernel takes from a sender ahead
    process = push()
    wait_until(lambda: any(line["step"] for line in of_kind(folder, "train")), lambda: "no progress")
    (folder / FileName.STOP).touch()
    succeeded(process, folder)
    assert not hub.repositories
    assert not hub.uploaded
    assert of_kind(folder, "trained")[-1]["data"] == {"how": "stopped"}
    assert "was deleted again" in of_kind(folder, "result")[-1]["data"]["text"]
