"""The demo, which installs the trainer if it is missing, creates a tiny model and a few hundred problems, and launches
a run."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets import actions, worker
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.platform.accounts.models import User
from controlplane.setup.bootstrap import INSTALL_SECONDS, TRAINER_PYTHON
from controlplane.setup.serving.processes import BASE_DIR, ServedProgram, has_ended, kill_and_reap, spawn, tail
from controlplane.setup.serving.serving import RunningServices
from runs.engine.models import Run
from runs.engine.scheduling import launching
from runs.engine.spec import LaunchRequest
from runs.engine.states import ACTIVE
from runs.launch import demo
from runs.launch.demo import NAME, Stage

MODEL = "demo-arithmetic"
MODEL_MESSAGE = "Creating a tiny language model and teaching it the answer format"
INSTALLER = (sys.executable, "-m", "controlplane.setup.bootstrap.on_demand", "trainer")
INSTALL_DEADLINE_S = 3600.0
MODEL_DEADLINE_S = 3600.0
PROGRESS_S = 15.0
HOST_DEADLINE_S = 120.0
DATASET_DEADLINE_S = 120.0


class DemoFailed(Exception):
    """Error for a demo that can't be set up; the message says why."""


class Demo:
    """Set-up of the demo in an installation. Each step reuses what an earlier demo has created."""

    def __init__(self, serving: RunningServices, user: User, report: Callable[[str], None], *, quick: bool) -> None:
        self.quick = quick
        self.serving = serving
        self.user = user
        self._say = report
        self.installation = serving.installation

    def launch(self, steps: int | None) -> Run:
        """Return the demo run: an earlier one that is still active, or else a new one. Raises DemoFailed if what it
        needs can't be installed or prepared."""
        try:
            self._install()
            return self._launch(steps)
        finally:
            demo.finish()

    def _install(self) -> None:
        if self.installation.trainer_python is None:
            if os.environ.get("CONTROLPLANE_BOOTSTRAP") == "off":
                raise DemoFailed(
                    "There is no trainer environment: set GRPO_TRAINER_PYTHON to an interpreter that has trl."
                )
            self._say("Installing the trainer, which takes a few minutes once; the page shows it …")
            started_at = time.monotonic()
            self._run_to_end("trainer-install", INSTALLER, Stage.INSTALL, INSTALL_DEADLINE_S)
            elapsed = time.monotonic() - started_at
            os.environ[INSTALL_SECONDS] = repr(float(os.environ.get(INSTALL_SECONDS, "0")) + elapsed)
            self.serving.use_trainer(TRAINER_PYTHON)
            self.installation = self.serving.installation
        self.python = str(self.installation.trainer_python)

    def _launch(self, steps: int | None) -> Run:
        active_run = Run.objects.filter(name=NAME, attempts__status__in=ACTIVE).first()
        if active_run is not None:
            self._say("A demo run from an earlier start is still active; continuing with it.")
            return active_run
        demo.report(Stage.DATA)
        config: dict[str, Any] = json.loads(self._run_tiny("--demo-config"))
        version, rewards = self._dataset(config["dataset"]), self._rewards(config["rewards"])
        model = self._model()
        host = self._host()
        grpo = {**config["grpo"], **({"max_steps": steps} if steps else {})}
        demo.report(Stage.START)
        return launching.submit(
            LaunchRequest(
                name=NAME,
                host=host,
                dataset_version=version,
                reward_version=rewards,
                profile=self._profile(config["hardware"]),
                model=str(model),
                grpo=grpo,
                attn_implementation=config["attn_implementation"],
                eval_rows=config["dataset"]["eval_rows"],
            ),
            user=self.user,
        )

    def _dataset(self, config: dict[str, Any]) -> DatasetVersion:
        ready_versions = DatasetVersion.objects.filter(
            dataset__name=config["name"],
            dataset__deleted_at=None,
            status=DatasetVersion.READY,
            validation_rows__gte=config["eval_rows"],
        )
        if ready_version := ready_versions.order_by("number").last():
            return ready_version
        problems = self.installation.data / "demo-problems.jsonl"
        self._run_tiny("--problems", str(problems))
        with problems.open("rb") as file:
            version = actions.create_from_upload(self.user, config["name"], file, problems.name)
        mapping = ColumnMapping(prompt=config["prompt_column"], answer=config["answer_column"])
        if self._wait_until_processed(version).status == DatasetVersion.NEEDS_MAPPING and actions.request_import(
            version, mapping
        ):
            self._wait_until_processed(version)
        if version.status != DatasetVersion.READY:
            report = version.report.get("mapped") or version.report
            raise DemoFailed(f"The demo's dataset is not usable: {report.get('file_error') or report.get('problems')}")
        return version

    def _wait_until_processed(self, version: DatasetVersion) -> DatasetVersion:
        deadline = time.monotonic() + DATASET_DEADLINE_S
        worker.process(version)
        version.refresh_from_db()
        while version.status in DatasetVersion.AT_WORK:
            if time.monotonic() > deadline:
                raise DemoFailed("The demo's dataset wasn't processed in time. See control.log in the data folder.")
            time.sleep(0.2)
            worker.process(version)
            version.refresh_from_db()
        return version

    def _rewards(self, components: list[dict[str, Any]]) -> RewardVersion:
        if config := RewardConfig.objects.filter(name=NAME).first():
            return config.newest()
        about = "Is the answer right, and is it in the right form?"
        return saving.make(NAME, components, owner=self.user, description=about)

    def _profile(self, hardware: dict[str, Any]) -> HardwareProfile:
        defaults = {"spec": hardware, "owner": self.user, "description": "One CPU slot; enough for the tiny model."}
        return HardwareProfile.objects.get_or_create(name=NAME, defaults=defaults)[0]

    def _model(self) -> Path:
        """Return the model's folder, which is created if it is missing. It is renamed into place, so that it is always
        complete."""
        name = f"{MODEL}-quick" if self.quick else MODEL
        model = self.installation.models_dir / name
        if model.exists():
            return model
        duration = "a few seconds" if self.quick else "half a minute on a quiet machine"
        self._say(f"{MODEL_MESSAGE} ({duration}) …")
        draft = self.installation.models_dir / f".{name}.new"
        argv = [self.python, "-m", "workers.trainer.tiny", str(draft), *(["--quick"] if self.quick else [])]
        self._run_to_end("demo-model", argv, Stage.MODEL, MODEL_DEADLINE_S)
        draft.rename(model)
        return model

    def _run_to_end(self, name: str, argv: Sequence[str], stage: Stage, deadline_s: float) -> None:
        """Run a program to its end while the page shows the last line of its log. Raises DemoFailed with the end of the
        log."""
        log = self.installation.data / f"{name}.log"
        log.unlink(missing_ok=True)
        process = spawn(ServedProgram(name=name, argv=list(argv), env=self.installation.environment(), log=log))
        try:
            has_completed = self.serving.watch_until(self._progress_until_ended(process, log, stage), deadline_s)
        finally:
            code = kill_and_reap(process)
        if not has_completed or code:
            raise DemoFailed(f"“{stage}” failed; the end of {log}:\n{tail(log)}")

    def _progress_until_ended(self, process: subprocess.Popen[bytes], log: Path, stage: Stage) -> Callable[[], bool]:
        shown_at = time.monotonic()

        def ended() -> bool:
            nonlocal shown_at
            last_line = tail(log, lines=1)
            demo.report(stage, last_line)
            if last_line and time.monotonic() - shown_at > PROGRESS_S:
                shown_at = time.monotonic()
                self._say(f"  {last_line}")
            return has_ended(process)

        return ended

    def _host(self) -> Host:
        hosts = Host.objects.filter(name=self.installation.host_name, announced_at__isnull=False)
        ready_hosts = hosts.exclude(inventory__trainer="missing")
        demo.report(Stage.HOST)
        if not self.serving.watch_until(ready_hosts.exists, HOST_DEADLINE_S):
            raise DemoFailed(f"This machine's worker hasn't announced itself. See {self.installation.data}/host.log.")
        return ready_hosts.get()

    def _run_tiny(self, *arguments: str) -> str:
        argv = [self.python, "-m", "workers.trainer.tiny", *arguments]
        result = subprocess.run(argv, cwd=BASE_DIR, capture_output=True, text=True)
        if result.returncode:
            raise DemoFailed(f"The trainer's interpreter failed:\n{result.stderr}")
        return result.stdout
