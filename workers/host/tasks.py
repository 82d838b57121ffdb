"""Celery tasks for the control plane's commands: short, idempotent, and without any logic."""

import logging
from contextlib import closing
from typing import Any

from workers.contract.wire.names import StopMode, Task
from workers.host import deleting, launcher, reaper, storing
from workers.host.celery import app
from workers.models import inspection, tokenizer_files
from workers.models.hub import Hub
from workers.settings import HostSettings
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.reports.control import Control

log = logging.getLogger(__name__)


@app.task(name=Task.LAUNCH_RUN)  # type: ignore[untyped-decorator]
def launch_run(attempt_spec: dict[str, Any], token: str) -> str:
    outcome = launcher.launch_and_report(attempt_spec, token, HostSettings.from_env())
    log.info("launch of %s: %s", attempt_spec.get("attempt_id"), outcome)
    return outcome


@app.task(name=Task.STOP_RUN)  # type: ignore[untyped-decorator]
def stop_run(run_id: str, attempt_number: int, mode: str) -> bool:
    return AttemptFolder.of(HostSettings.from_env().runs_dir, run_id, attempt_number).request_stop(StopMode(mode))


@app.task(name=Task.WATCH_RUN)  # type: ignore[untyped-decorator]
def watch_run(run_id: str, attempt_number: int) -> bool:
    return AttemptFolder.of(HostSettings.from_env().runs_dir, run_id, attempt_number).mark_watched()


@app.task(name=Task.REAP_RUN)  # type: ignore[untyped-decorator]
def reap_run(run_id: str, attempt_number: int, token: str, placement: dict[str, Any] | None = None) -> bool:
    return reaper.reap(run_id, attempt_number, token, HostSettings.from_env(), placement)


@app.task(name=Task.DELETE_MODEL)  # type: ignore[untyped-decorator]
def delete_model(folder: str, token: str) -> bool:
    return deleting.delete_and_report(folder, token, HostSettings.from_env())


@app.task(name=Task.STORE_MODEL)  # type: ignore[untyped-decorator]
def store_model(folder: str, token: str) -> bool:
    return storing.store_and_report(folder, token, HostSettings.from_env())


@app.task(name=Task.INSPECT_MODEL)  # type: ignore[untyped-decorator]
def inspect_model(inspection_id: int, model: str, revision: str = "") -> None:
    settings = HostSettings.from_env()
    hub = Hub.of(settings.hf_token_file)
    result = inspection.inspect(model, settings.model_folders, hub, revision=revision)
    tokenizer = tokenizer_files.TokenizerFiles({})
    if result["ok"] and not result.get("unreachable"):
        tokenizer = tokenizer_files.collect(model, settings.model_folders, hub, revision=revision)
        result["tokenizer_files"] = tokenizer.summary()
    with closing(Control.of(settings, settings.host_token())) as control:
        wants_tokenizer = control.answer_inspection(inspection_id, {**result, "host": settings.name})
        if wants_tokenizer and tokenizer.files:
            control.send_tokenizer(settings.name, inspection_id, tokenizer.body(), tokenizer.size)
