"""TRL imports vLLM wherever it is installed; a trainer that only speaks HTTP doesn't."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.preloaded import Preloaded

pytestmark = pytest.mark.trainer

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from workers.contract.run.spec import DataSpec, ModelSpec, RunSpec
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec, WeightSync
from workers.trainer.configuration import imports
server = ServerSpec(weight_sync=WeightSync({weights!r}))
hardware = HardwareSpec("p", rollout=Rollout({rollout!r}), server=server)
imports.skip_vllm(RunSpec("r", "r", "train", ModelSpec("m"), DataSpec("d", 1, "", 1), (), hardware, {{}}))
for name in [name for name in sys.modules if name.startswith("trl.generation")]:
    del sys.modules[name]
import trl.generation.vllm_generation
"""


@pytest.mark.parametrize(
    ("rollout", "weights", "imported"),
    [("server", "lora", False), ("transformers", "nccl", False), ("server", "nccl", True), ("colocate", "lora", True)],
)
def test_vllm_is_imported_only_by_a_trainer_that_uses_it(
    preloaded: Preloaded, tmp_path: Path, rollout: str, weights: str, imported: bool
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise SystemExit('vllm was imported')")
    program = PROGRAM.format(folder=str(tmp_path), rollout=rollout, weights=weights)
    ended = preloaded.run("-c", program, check=False)
    assert ("vllm was imported" in ended.stderr) == imported, ended.stderr
    assert (ended.returncode == 0) != imported
