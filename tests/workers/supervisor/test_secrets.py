"""Secrets that a claim gave: each in the one process that needs it, in no argument, no file and no line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.workers.supervisor.attempts import attempt, of_process
from tests.workers.supervisor.servers import server_attempt
from workers.contract.stack.commands import AWAIT_SERVERS
from workers.contract.wire.names import StopMode
from workers.supervisor.processes import procfs

pytestmark = pytest.mark.processes

KEY, HUB_KEY = "sk-judge-that-must-not-leak", "hf_that_must_not_leak"
SECRETS = {"HF_TOKEN": HUB_KEY, "GRPO_SECRET_JUDGE": json.dumps({"address": "https://judge.example/v1", "key": KEY})}


def test_an_endpoints_key_is_in_the_trainers_environment_and_in_no_other(tmp_path: Path) -> None:
    with server_attempt(tmp_path, trainer="forever") as made:
        made.control.secrets = SECRETS
        made.launch(HF_TOKEN="inherited")
        made.wait_for_step(1)
        roles = {line["data"]["pid"]: line["data"]["role"] for line in made.control.of_kind("process_started")}
        environments = {role: of_process(pid, "environ") for pid, role in roles.items()}
        lines = [of_process(row.pid, "cmdline") for row in procfs.table()]
        supervisor = of_process(made.supervisor().pid, "environ")
        seen = made.trainer_environment()
        made.ask_to_stop(StopMode.NOW)
    assert KEY.encode() in environments["trainer"]
    assert environments["vllm"]
    assert b"GRPO_SECRET" not in environments["vllm"]
    assert b"GRPO_SECRET" not in supervisor
    assert HUB_KEY.encode() not in environments["trainer"] + environments["vllm"] + supervisor
    assert not any(KEY.encode() in line or HUB_KEY.encode() in line for line in lines)
    assert {name for name in seen if name.startswith("GRPO_")} == {"GRPO_SECRET_JUDGE", AWAIT_SERVERS}


def test_no_file_line_or_log_of_an_attempt_has_a_key(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:3,crash") as made:
        made.control.secrets = SECRETS
        made.launch()
        made.wait_for_end()
        wait_until(lambda: "trainer" in made.control.logs, made.why)
        files = [path for path in made.folder.path.rglob("*") if path.is_file() and path.name != "environment.json"]
        sent = [json.dumps(made.control.lines, default=str).encode(), *map(bytes, made.control.logs.values())]
        everything = [*(path.read_bytes() for path in files), *sent]
    assert {"spec.json", "outbox.jsonl", "supervisor.log", "trainer.log"} <= {path.name for path in files}
    for content in everything:
        assert KEY.encode() not in content
        assert HUB_KEY.encode() not in content
