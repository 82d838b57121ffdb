"""What a mapping makes of real rows, in the child with its limits: quick, exact, and with a word for what fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.prompts import render_rows
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.controlplane.catalogue.datasets.tokenizers import CHATML, a_tokenizer

GSM8K = {"prompt": "question", "answer": "answer", "transform": "gsm8k", "system_prompt": "Be brief."}
ROW = {"question": "2 + 2?", "answer": "Two and two.\n#### 4", "level": 1}


def render(folder: Path, *rows: Any, **arguments: Any) -> dict[str, Any]:
    (folder / files.SOURCE).write_text("\n".join(map(json.dumps, rows or [ROW])))
    return render_rows.run(folder, {"mapping": GSM8K, "tokenizer": None} | arguments)


def child(folder: Path, **arguments: Any) -> subprocess.CompletedProcess[str]:
    (folder / files.SOURCE).write_text(json.dumps(ROW))
    given = json.dumps({"mapping": GSM8K, "tokenizer": None} | arguments)
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "controlplane.catalogue.datasets.reader",
        str(folder),
        "render",
    ]
    env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, env=env)


def test_a_row_becomes_the_prompt_the_model_is_given(tmp_path: Path) -> None:
    ((row,),) = render(tmp_path, tokenizer=str(a_tokenizer(tmp_path)))["rows"]
    assert row["text"] == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert row["messages"][1] == {"role": "user", "content": "2 + 2?"}
    assert (row["answer"], row["test_cases"], row["metadata"]["level"], row["problem"]) == ("4", [], 1, "")
    assert row["tokens"] == 5 + len("system\nBe brief.\nuser\n2 + 2?\nassistant\n")


def test_without_a_tokenizer_the_messages_are_shown(tmp_path: Path) -> None:
    ((row,),) = render(tmp_path)["rows"]
    assert (row["text"], row["tokens"]) == ("system:\nBe brief.\n\nuser:\n2 + 2?", None)


@pytest.mark.parametrize(("response", "said"), [({}, "missing"), ({"answer": "5"}, "####")])
def test_a_row_that_can_not_be_made_says_why_beside_the_others(
    response: dict[str, str], said: str, tmp_path: Path
) -> None:
    (bad,), (good,) = render(tmp_path, {"question": "2?", **response}, ROW)["rows"]
    assert said in bad["problem"]
    assert (bad["text"], good["problem"]) == ("", "")


def test_a_template_that_refuses_and_one_that_is_broken_are_told_apart(tmp_path: Path) -> None:
    refusing = a_tokenizer(tmp_path / "a", chat_template="{{ raise_exception('no system') }}")
    ((row,),) = render(tmp_path, tokenizer=str(refusing))["rows"]
    assert row["problem"] == "The chat template refuses these messages: no system."
    assert row["messages"]
    broken = render(tmp_path, tokenizer=str(a_tokenizer(tmp_path / "b", chat_template="{% if %}")))
    assert "can't be read" in broken["problem"]
    assert broken["rows"][0][0]["text"].startswith("system:")


def test_the_first_rows_of_the_source_are_taken_in_full(tmp_path: Path) -> None:
    long = {**ROW, "question": "why? " * 1_000}
    rows = render(tmp_path, "not a row", long, *[ROW] * 20)["rows"]
    assert len(rows) == render_rows.PREVIEW_ROWS
    assert rows[0][0]["messages"][1]["content"] == long["question"]
    (tmp_path / files.SOURCE).write_bytes(b"\x80\x04\x95")
    assert render_rows.run(tmp_path, {"mapping": GSM8K})["problem"]


def test_the_child_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    done = child(tmp_path, tokenizer=str(a_tokenizer(tmp_path)))
    assert json.loads(done.stdout)["rows"][0][0]["answer"] == "4"
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not loaded & {"pyarrow", "numpy", "django", "huggingface_hub"}
    assert "jinja2" in loaded


HOSTILE = {
    "memory": "{% set n = namespace(x='a' * 1000000) %}{% for i in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "text": "{% for i in range(9999) %}{{ messages[0].content.center(9999) }}{% endfor %}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_ends_in_words_under_the_childs_limits(name: str, tmp_path: Path) -> None:
    done = child(tmp_path, tokenizer=str(a_tokenizer(tmp_path, chat_template=HOSTILE[name])))
    assert done.returncode == 0
    ((row,),) = json.loads(done.stdout)["rows"]
    assert "The chat template" in row["problem"]
    assert row["text"] == ""


def test_a_template_of_chat_is_not_asked_for_plain_text(tmp_path: Path) -> None:
    plain = {**GSM8K, "chat": False, "system_prompt": ""}
    ((row,),) = render(tmp_path, mapping=plain, tokenizer=str(a_tokenizer(tmp_path, chat_template=CHATML)))["rows"]
    assert (row["text"], row["tokens"]) == ("2 + 2?", 7)
