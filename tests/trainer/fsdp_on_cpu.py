"""python -m tests.trainer.fsdp_on_cpu FOLDER, under torchrun: trains an attempt with FSDP2 on the CPU, over gloo.

accelerate shards on GPUs only and takes plain DDP elsewhere, so the trainer refuses FSDP2 on the CPU; the code that
runs after that decision is the same on both, and this makes the decision for it.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from accelerate import state
from accelerate.utils import DistributedType

from tests.trainer.playing import ENTRIES
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import FileName
from workers.environments.library import LIBRARY
from workers.trainer import data
from workers.trainer.configuration import environment
from workers.trainer.recording.metrics import LineFile
from workers.trainer.scoring import rewards
from workers.trainer.train import train

theirs = state.AcceleratorState.__init__


def shard_here_too(self: Any, *arguments: Any, fsdp_plugin: Any = None, **more: Any) -> None:
    theirs(self, *arguments, fsdp_plugin=fsdp_plugin, **more)
    if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.FSDP
        self.fsdp_plugin = fsdp_plugin
        state.PartialState._shared_state["distributed_type"] = DistributedType.FSDP


folder = Path(sys.argv[1]).resolve()
spec = from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_bytes()))
environment.prepare(spec)
LIBRARY.update({entry.key: entry for entry in ENTRIES})
state.AcceleratorState.__init__ = shard_here_too
metrics = LineFile(folder / FileName.METRICS, writes=environment.rank() == 0)
with closing(rewards.tools_for(spec, folder)) as tools:
    train(spec, data.read(folder, spec), folder, metrics, tools)
