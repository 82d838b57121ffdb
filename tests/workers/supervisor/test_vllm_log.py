"""What vLLM's own log says of its memory, as a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.supervisor.servers.vllm import MAX_BYTES, describe_memory

WEIGHTS = (
    "(EngineCore pid=1) INFO 11-21 10:00:00 [gpu_model_runner.py:4819] Model loading took 14.2717 GiB memory and 3 s"
)
CACHE = "INFO 11-21 10:00:09 [gpu_worker.py:298] Available KV cache memory: 1.82 GiB"
TOKENS = "INFO 11-21 10:00:09 [kv_cache_utils.py:1087] GPU KV cache size: 34,112 tokens"
GRAPHS = "INFO 11-21 10:00:14 [gpu_model_runner.py:5012] Graph capturing finished in 4 secs, took 0.53 GiB"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([WEIGHTS, CACHE, TOKENS, GRAPHS],
         "14.3 GiB of weights, 1.82 GiB of KV cache for 34,112 tokens, 0.53 GiB of CUDA graphs"),
        ([WEIGHTS, WEIGHTS.replace("14.2717", "7.1")], "14.3 GiB of weights"),
        ([CACHE], "1.82 GiB of KV cache"),
    ],
)  # fmt: skip
def test_its_words_become_a_sentence(tmp_path: Path, lines: list[str], words: str) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("\n".join(lines) + "\n")
    assert describe_memory(log) == f"On each of its GPUs vLLM uses {words}."


@pytest.mark.parametrize("text", [b"", b"\0\xff" * 100, b"Model loading took 1.2.3 GiB", b"KV cache size: ,,, tokens"])
def test_a_log_that_says_nothing_of_it_gives_none(tmp_path: Path, text: bytes) -> None:
    log = tmp_path / "vllm.log"
    log.write_bytes(text)
    assert describe_memory(log) == ""
    assert describe_memory(tmp_path / "none.log") == ""


def test_only_the_start_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_bytes(b"x" * MAX_BYTES + CACHE.encode())
    assert describe_memory(log) == ""
