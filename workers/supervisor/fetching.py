"""The step that downloads models from the hub, in a child with the trainer's interpreter, and reports its progress."""

import logging
import os
from typing import Any

from workers.contract.reports.lines import object_of
from workers.contract.stack.commands import hub_models
from workers.contract.wire.names import EndReason, EventKind, FileName, Phase
from workers.supervisor import commands
from workers.supervisor.end_reasons import End
from workers.supervisor.processes.child import DOWNLOAD
from workers.supervisor.reports.tail import Tail
from workers.supervisor.starting import after_fetching
from workers.supervisor.steps import Outcome, StepContext, StepWork

log = logging.getLogger(__name__)

_MIB = 1 << 20
_METRICS = {"done_bytes": "download/done_mib", "total_bytes": "download/total_mib"}


class Fetching(StepWork):
    def __init__(self, context: StepContext) -> None:
        super().__init__(context)
        self._progress = Tail(context.folder / FileName.DOWNLOAD, object_of)
        self._newest: dict[str, float] = {}
        self._reported: dict[str, float] = {}
        self._next_at = float("-inf")
        self._heard_at = 0.0

    def begin(self, now: float) -> Outcome:
        context = self._context
        self._heard_at = now
        names = ", ".join(model.path for model in hub_models(context.spec.run))
        context.report.phase(Phase.FETCHING_MODEL, f"fetching {names}")
        argv = commands.download_argv(context.spec, context.settings, context.folder.path)
        environment = commands.download_environment(context.settings, os.environ, context.secrets, self._hub_token())
        return context.start(DOWNLOAD, argv, environment)

    def on_exits(self, now: float) -> Outcome:
        exit_ = self._context.children.exits.get(DOWNLOAD)
        return self._context.judge.download(exit_) if exit_ is not None and exit_.code != 0 else None

    def tick(self, now: float) -> Outcome:
        for line in self._progress.read():
            self._heard_at = now
            self._newest = {name: line[key] / _MIB for key, name in _METRICS.items() if _is_size(line.get(key))}
        context = self._context
        if DOWNLOAD in context.children.exits:
            self._report(now)
            self._progress.close()
            return after_fetching(context)
        if now >= self._next_at:
            self._report(now)
        silence = context.settings.download_silence_s
        if now - self._heard_at >= silence:
            return End(EndReason.MODEL_UNAVAILABLE, f"The download made no progress for {silence:g} s.")
        return None

    def _report(self, now: float) -> None:
        if self._newest == self._reported:
            return
        self._reported = self._newest
        self._next_at = now + self._context.settings.sample_s
        metrics = {name: round(value, 1) for name, value in self._newest.items()}
        self._context.report.append(EventKind.SYSTEM, metrics)

    def _hub_token(self) -> str:
        """Read the host's token for the hub; return "" if there is none, which still allows public models."""
        file = self._context.settings.hf_token_file
        if file is None:
            return ""
        try:
            if file.stat().st_mode & 0o077:
                self._context.report.note(f"Other users can read {file}: set its mode to 0600.", level="warning")
            return file.read_text().strip()
        except (OSError, ValueError) as error:
            log.warning("no token for the hub: %s", error)
            problem = error.strerror if isinstance(error, OSError) else "it isn't text"
            warning = (
                f"The host's token for the hub can't be read from {file}: {problem}. Gated models can't be downloaded."
            )
            self._context.report.note(warning, level="warning")
            return ""


def _is_size(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 60
