"""How ranks come to be: started by the trainer itself or by somebody's launcher, in the environment of the spec."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.listening import tcp_addresses
from tests.trainer import builders
from workers.contract.run.hardware import Rollout, ServerSpec, Strategy, WeightSync
from workers.contract.run.spec import AttemptSpec, LoraSpec
from workers.contract.stack import commands
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import FileName
from workers.supervisor.commands import SOURCE_ROOT
from workers.trainer import __main__ as trainer
from workers.trainer.configuration import environment, ranks
from workers.trainer.configuration.spec import SpecError


def attempt(folder: Path, **profile: Any) -> AttemptSpec:
    run = {"lora": LoraSpec()}
    builders.attempt_folder(folder, model="a/b", hardware=profile, run=run, placement={"ports": [9000]})
    return from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_bytes()))


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The process environment, as a dictionary of the test's own."""
    own = {"HOME": os.environ.get("HOME", "/")}
    monkeypatch.setattr(os, "environ", own)
    return own


@pytest.mark.parametrize(
    ("profile", "needed"),
    [
        ({}, False),
        ({"processes": 2}, True),
        ({"strategy": Strategy.DDP}, False),
        ({"strategy": Strategy.ZERO1}, True),  # DeepSpeed wants a process group of one too
    ],
)
def test_torchrun_is_used_where_a_process_group_is_wanted(
    profile: dict[str, Any], needed: bool, tmp_path: Path
) -> None:
    assert commands.has_ranks(attempt(tmp_path, **profile)) is needed


def test_a_launcher_that_started_another_number_of_ranks_is_refused(tmp_path: Path, environ: dict[str, str]) -> None:
    spec = attempt(tmp_path, processes=2)
    environ["WORLD_SIZE"] = "2"
    ranks.check(spec)
    environ["WORLD_SIZE"] = "3"
    with pytest.raises(SpecError, match="has started 3 processes, but the spec is for 2"):
        ranks.check(spec)


def test_what_a_launcher_says_of_precision_and_sharding_is_dropped(tmp_path: Path, environ: dict[str, str]) -> None:
    environ |= {"ACCELERATE_USE_CPU": "true", "ACCELERATE_MIXED_PRECISION": "fp16", "LOCAL_RANK": "0"}
    environment.prepare(attempt(tmp_path))
    assert not [name for name in environ if name.startswith("ACCELERATE_")]
    assert environment.is_inside_launcher()


def test_the_profiles_variables_are_set_unless_the_host_has_set_them(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["NCCL_DEBUG"] = "INFO"
    environment.prepare(attempt(tmp_path, environment={"NCCL_DEBUG": "WARN", "NCCL_P2P_DISABLE": "1"}))
    assert (environ["NCCL_DEBUG"], environ["NCCL_P2P_DISABLE"]) == ("INFO", "1")


def test_the_weight_transfer_to_an_own_server_stays_on_loopback(tmp_path: Path, environ: dict[str, str]) -> None:
    attached = ServerSpec(attached=("http://10.0.0.1:8000",), weight_sync=WeightSync.LORA)
    environment.prepare(attempt(tmp_path / "a", rollout=Rollout.SERVER, server=attached))
    assert "VLLM_HOST_IP" not in environ
    environment.prepare(attempt(tmp_path / "b", rollout=Rollout.SERVER, server=ServerSpec()))
    assert environ["VLLM_HOST_IP"] == "127.0.0.1"


def test_trainers_that_start_together_have_ports_of_their_own(tmp_path: Path, environ: dict[str, str]) -> None:
    environment.prepare(attempt(tmp_path / "a", rollout=Rollout.COLOCATE))
    first = environ.pop("MASTER_PORT")
    environment.prepare(attempt(tmp_path / "b", rollout=Rollout.COLOCATE))
    assert environ.pop("MASTER_PORT") not in (first, "29500")
    environment.prepare(attempt(tmp_path / "c", rollout=Rollout.COLOCATE, processes=2))
    assert "MASTER_PORT" not in environ, "torchrun chooses that of its ranks"


def test_an_error_of_a_rank_reaches_the_launcher_in_its_own_words(tmp_path: Path, environ: dict[str, str]) -> None:
    attempt(tmp_path)
    (tmp_path / FileName.METRICS).mkdir()
    environ |= {"LOCAL_RANK": "0", "TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")}
    with pytest.raises(IsADirectoryError):
        trainer.main([str(tmp_path)])
    assert json.loads((tmp_path / "error.json").read_text())["message"].startswith("IsADirectoryError: ")


MEETS = """
import json, os, sys
from pathlib import Path
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.documents import from_dict
from workers.trainer.configuration import environment, ranks
spec = from_dict(AttemptSpec, json.loads(Path(sys.argv[1]).read_bytes()))
environment.prepare(spec)
import torch.distributed
ranks.join_group(spec)
for _ in range(2):  # the second group shares the store of the first
    # As TRL and vLLM do for a model in one process.
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost")
    torch.distributed.init_process_group("gloo", init_method="env://")
    torch.distributed.barrier()
    print("met", flush=True)
    sys.stdin.readline()
    torch.distributed.destroy_process_group()
"""


@pytest.mark.trainer
@pytest.mark.processes
def test_the_process_group_of_vllm_inside_a_trainer_listens_on_loopback(tmp_path: Path, trainer_python: Path) -> None:
    attempt(tmp_path, rollout=Rollout.COLOCATE)
    command = [str(trainer_python), "-c", MEETS, str(tmp_path / FileName.SPEC)]
    with subprocess.Popen(
        command, cwd=SOURCE_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.readline() == "met\n"
            assert tcp_addresses(process.pid) == {"127.0.0.1"}
            print(file=process.stdin, flush=True)
    assert process.returncode == 0
