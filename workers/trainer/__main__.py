"""python -m workers.trainer FOLDER: train the attempt in FOLDER/spec.json on FOLDER/dataset.parquet, or do its job.

Writes metrics.jsonl, samples.jsonl and checkpoints/ there, and ends with a checkpoint when FOLDER/STOP appears. Exit
codes: 0 trained (or stopped as requested), 3 the spec can't be trained, 4 there are no steps to train, 5 the vLLM
server has failed, 7 a reward has failed on too many rows, 8 Atropos' run-api has failed; after a failure, the last line
on stderr is an error message.
"""

import argparse
import faulthandler
import io
import signal
import sys
from contextlib import closing
from pathlib import Path

from workers.contract.run import jobs
from workers.contract.run.spec import AttemptSpec
from workers.contract.stack import commands
from workers.contract.wire.names import EventKind, FileName
from workers.trainer import data
from workers.trainer.configuration import environment, imports, ranks, spec
from workers.trainer.jobs import ModelJob, run
from workers.trainer.recording.metrics import LineFile
from workers.trainer.scoring import rewards


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.trainer", description=__doc__)
    parser.add_argument("folder", type=Path, help="an attempt's folder with spec.json and dataset.parquet")
    folder = parser.parse_args(argv).folder.resolve()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # logs are followed live
    try:
        return _run(folder)
    except spec.TrainerError as error:
        sentence = " ".join(str(error).split())
        ranks.report(sentence)
        sys.stdout.flush()
        print(sentence, file=sys.stderr, flush=True)
        return error.exit_code
    except Exception as error:
        ranks.report(f"{type(error).__name__}: {' '.join(str(error).split())}")
        raise


def _run(folder: Path) -> int:
    faulthandler.register(signal.SIGUSR1, file=2)  # for a supervisor that can't read the stacks itself
    attempt = spec.read(folder)
    if attempt.run.kind in jobs.KINDS:
        return _train_or_run_job(attempt, folder)
    rows = data.read(folder, attempt)
    environment.prepare(attempt)
    if environment.is_inside_launcher():
        ranks.check(attempt)
    elif commands.has_ranks(attempt):
        return ranks.launch(folder, attempt.run.hardware.processes)

    metrics = LineFile(folder / FileName.METRICS, writes=environment.rank() == 0)
    metrics.event(EventKind.STAGE, {"stage": "importing libraries"})
    with closing(rewards.tools_for(attempt, folder)) as tools:
        with imports.speed_up():
            imports.skip_vllm(attempt.run)
            from workers.trainer.train import train  # torch, transformers and TRL: ten seconds

        train(attempt, rows, folder, metrics, tools)
    return 0


def _train_or_run_job(attempt: AttemptSpec, folder: Path) -> int:
    rows = data.read(folder, attempt) if jobs.kind_of(attempt.run.kind).reads_rows else None
    environment.prepare(attempt)
    job = ModelJob(attempt, folder, LineFile(folder / FileName.METRICS), rows)
    job.stage("importing libraries")
    run(job)
    return 0


if __name__ == "__main__":
    sys.exit(main())
