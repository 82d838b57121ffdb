"""Several servers as one: prompt groups shared out, one version everywhere, and the first failure at once."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.running_vllm import RunningVllm
from tests.trainer import builders
from tests.trainer.test_vllm_client import ALLOWED, LORA, SAMPLING, adapter
from workers.contract.run.hardware import Rollout, ServerSpec, WeightSync
from workers.contract.run.spec import AttemptSpec, LoraSpec
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import FileName
from workers.trainer.rollouts import fanout
from workers.trainer.rollouts.vllm_client import ServerError


def spec(folder: Path, *ports: int, attached: tuple[str, ...] = ()) -> AttemptSpec:
    server = ServerSpec(count=max(len(ports), 1), weight_sync=WeightSync.LORA, attached=attached, request_timeout_s=5)
    hardware = {"rollout": Rollout.SERVER, "server": server}
    run = {"lora": LoraSpec(r=8)}
    builders.attempt_folder(folder, model="some/model", hardware=hardware, placement={"ports": list(ports)}, run=run)
    return from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_bytes()))


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[fanout.ServerFanout, RunningVllm, RunningVllm]]:
    with RunningVllm(*LORA, name="r1-1", **ALLOWED) as one, RunningVllm(*LORA, name="r1-1-vllm-2", **ALLOWED) as other:
        servers = fanout.connect(spec(tmp_path / "attempt", one.ready().port, other.ready().port))
        servers.check()
        yield servers, one, other


@pytest.mark.parametrize(
    ("items", "count", "expected"),
    [
        (4, 2, [[0, 1], [2, 3]]),
        (5, 2, [[0, 1, 2], [3, 4]]),
        (7, 3, [[0, 1, 2], [3, 4], [5, 6]]),
        (1, 3, [[0], [], []]),
    ],
)
def test_prompts_are_shared_out_in_runs_as_even_as_can_be(items: int, count: int, expected: list[list[int]]) -> None:
    assert fanout.split_evenly(range(items), count) == expected


def test_the_first_failure_is_raised_while_the_others_still_work() -> None:
    finish = threading.Event()

    def fails() -> None:
        raise ServerError("gone")

    with pytest.raises(ServerError, match="gone"):
        fanout.run_concurrently([finish.wait, fails])
    finish.set()


@pytest.mark.processes
def test_each_group_is_made_by_one_server_and_comes_back_in_order(
    two: tuple[fanout.ServerFanout, RunningVllm, RunningVllm],
) -> None:
    servers, one, other = two
    completions = servers.complete([[5], [6], [7]], SAMPLING)
    assert [ids[0] for ids, _ in completions] == [5, 5, 6, 6, 7, 7]
    assert "Generated 4 sequences with model 'r1-1'" in one.log()
    assert "Generated 2 sequences with model 'r1-1-vllm-2'" in other.log()


@pytest.mark.processes
def test_all_servers_have_the_new_version_and_none_the_old_one(
    two: tuple[fanout.ServerFanout, RunningVllm, RunningVllm], tmp_path: Path
) -> None:
    servers, one, other = two
    for version in (1, 2):
        name = servers.adapter_name(version)
        servers.use_adapter(name, adapter(tmp_path / name))
    assert one.models() == ["r1-1", "policy-v2"]
    assert other.models() == ["r1-1-vllm-2", "policy-v2"]


@pytest.mark.processes
def test_a_server_that_is_gone_is_named(two: tuple[fanout.ServerFanout, RunningVllm, RunningVllm]) -> None:
    servers, _, other = two
    other.front.kill()
    other.front.wait()
    with pytest.raises(ServerError, match=rf"The vLLM server vllm-2 at 127.0.0.1:{other.port} is gone"):
        servers.complete([[5], [6]], SAMPLING)


@pytest.mark.processes
def test_somebody_elses_server_keeps_its_name_and_other_peoples_adapters(tmp_path: Path) -> None:
    with RunningVllm(*LORA, name="their-model", **ALLOWED) as theirs:
        theirs.ready().post("/v1/load_lora_adapter", lora_name="theirs", lora_path=str(adapter(tmp_path / "theirs")))
        asked = spec(tmp_path / "attempt", attached=(theirs.url,))
        first = fanout.connect(dataclasses.replace(asked, attempt_id="r1-1"))
        again = fanout.connect(dataclasses.replace(asked, attempt_id="r1-2"))
        first.check()
        first.use_adapter(first.adapter_name(1), adapter(tmp_path / "v1"))
        assert theirs.models() == ["their-model", "theirs", "r1-1-v1"]
        again.check()  # the first attempt of this run was killed
        assert theirs.models() == ["their-model", "theirs"]
        again.use_adapter(again.adapter_name(1), adapter(tmp_path / "again"))
        assert again.complete([[5]], SAMPLING)[0][0] == [5, 5, 5]
        again.close()
        assert theirs.models() == ["their-model", "theirs"]


@pytest.mark.processes
def test_a_server_that_takes_no_adapters_is_told_apart_from_one_that_lacks_the_file(tmp_path: Path) -> None:
    with RunningVllm(name="their-model") as theirs:
        servers: Any = fanout.connect(spec(tmp_path / "attempt", attached=(theirs.ready().url,)))
        servers.check()
        with pytest.raises(ServerError, match="is started with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"):
            servers.use_adapter("r1-1-v1", adapter(tmp_path / "v1"))


def test_a_server_that_biases_its_log_probabilities_speaks_for_all() -> None:
    class Told:
        def __init__(self, mode: str) -> None:
            self.info = {"model_config": {"logprobs_mode": mode}}

        def get_server_info(self) -> dict[str, Any]:
            return self.info

    clients: Any = [Told("processed_logprobs"), Told("raw_logprobs")]
    assert fanout.ServerFanout(clients).get_server_info() == clients[1].info
