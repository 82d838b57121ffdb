"""Reports to the control plane: the outbox's lines, completions, logs and metrics."""

import logging
import queue
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from workers.contract.reports.lines import Line, SyncAnswer
from workers.contract.run.jobs import ARCHIVE, SERVE, WARM
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.names import METRIC_KINDS, EventKind, FileName, Phase
from workers.settings import HostSettings
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.gpus import ReadGpus
from workers.supervisor.processes.loops import Loop
from workers.supervisor.processes.system import SystemSampler
from workers.supervisor.reports.archive import ArchiveUploader
from workers.supervisor.reports.chatfile import ChatFile
from workers.supervisor.reports.control import Control
from workers.supervisor.reports.logs import LogUploader
from workers.supervisor.reports.outbox import Outbox
from workers.supervisor.reports.samples import SampleUploader
from workers.supervisor.reports.sync import Syncer
from workers.supervisor.servers.servermetrics import Pulse, ServerMetrics

log = logging.getLogger(__name__)
Inbox = queue.SimpleQueue[Callable[[], None]]
"""Queue of calls from other threads that the main thread executes."""


class Reporting:
    """The main thread's interface to the reports; nothing here waits."""

    def __init__(
        self,
        folder: AttemptFolder,
        spec: AttemptSpec,
        settings: HostSettings,
        *,
        make_control: Callable[[], Control],
        acked: int,
        inbox: Inbox,
        on_response: Callable[[SyncAnswer], None],
    ) -> None:
        self._settings = settings
        self._inbox = inbox
        self._loops: list[Loop] = []
        self.outbox = Outbox(folder / FileName.OUTBOX, first_seq=spec.first_seq)
        self.syncer = Syncer(
            spec.attempt_id,
            self.outbox,
            make_control(),
            settings,
            acked=acked,
            on_response=lambda response: inbox.put(partial(on_response, response)),
            write_ack=lambda seq: folder.write_if_possible(FileName.ACK, str(seq)),
            chat=ChatFile(folder / FileName.CHAT) if spec.run.kind == SERVE else None,
            asks=spec.run.kind == WARM,
        )
        # While metrics can't be sent, completions and logs wait.
        self._samples = SampleUploader(
            spec.attempt_id, folder / FileName.SAMPLES, make_control(), settings, hold=lambda: self.syncer.failing
        )
        self._logs = LogUploader(
            spec.attempt_id,
            folder,
            make_control(),
            settings,
            watched=lambda: self.syncer.watched,
            hold=lambda: self.syncer.failing,
        )
        self._sync_loop = self._start("sync", self.syncer.tick)
        self._sample_loop = self._start("samples", self._samples.tick)
        self._log_loop = self._start("logs", self._logs.tick)
        if spec.run.kind == ARCHIVE:
            archive = ArchiveUploader(folder, spec, settings, make_control())
            self._start("archive", archive.tick)

    def append(self, kind: EventKind, data: dict[str, Any], *, step: int | None = None) -> None:
        self.outbox.append(kind, data, t=time.time(), step=step)
        self._wake_sync(kind)

    def forward(self, line: Line) -> None:
        """Append a line of the trainer to the outbox, unchanged."""
        self.outbox.add(line.text)
        self._wake_sync(line.kind)

    def phase(self, phase: Phase, detail: str = "", reason: str = "") -> None:
        """Report a phase. `reason`: why the attempt ends, once known; later phases keep it."""
        self.append(EventKind.PHASE, {"phase": phase, "detail": detail, **({"reason": reason} if reason else {})})

    def note(self, text: str, *, level: str = "info") -> None:
        self.append(EventKind.NOTE, {"text": text, "level": level})

    def sample_system(
        self,
        gpus: tuple[int, ...],
        read_gpus: ReadGpus,
        on_sample: Callable[[dict[str, float]], None],
    ) -> None:
        """Start sampling the host. `on_sample` is called in the main thread, which assigns each sample's seq."""
        sampler = SystemSampler(
            gpus, read_gpus=read_gpus, interval_s=self._settings.sample_s, on_sample=self._to_main(on_sample)
        )
        self._start("system", sampler.tick)

    def sample_servers(
        self, addresses: Sequence[str], on_sample: Callable[[dict[str, float]], None]
    ) -> Sequence[Pulse]:
        metrics = ServerMetrics(addresses, interval_s=self._settings.sample_s, on_sample=self._to_main(on_sample))
        self._start("vllm-metrics", metrics.tick)
        return metrics.pulses

    def stop_sampling(self) -> None:
        for loop in self._loops:
            if loop not in (self._sync_loop, self._sample_loop, self._log_loop):
                loop.stop()

    def close(self) -> None:
        """Begin to send what remains: the last line is in the outbox, and the supervisor's log ends here."""
        log.info("the attempt has ended; sending the rest")
        self.outbox.flush_to_disk()
        self._samples.close()
        self._logs.close()
        for loop in (self._sync_loop, self._sample_loop, self._log_loop):
            loop.wake()

    def is_handed_over(self) -> bool:
        """Return whether the control plane has everything, or doesn't know the attempt."""
        if self.syncer.given_up:
            return True
        samples = self._samples.drained or self._samples.refused
        return self.syncer.is_drained() and samples and self._logs.drained

    def wake(self, now: float) -> None:
        """Send immediately, because somebody has opened the run's page."""
        self.syncer.wake(now)
        self._sync_loop.wake()

    def _wake_sync(self, kind: str) -> None:
        if kind not in METRIC_KINDS:
            self.syncer.hurry()
        self._sync_loop.wake()

    def _to_main(self, call: Callable[[dict[str, float]], None]) -> Callable[[dict[str, float]], None]:
        return lambda sample: self._inbox.put(partial(call, sample))

    def _start(self, name: str, tick: Callable[[float], float]) -> Loop:
        loop = Loop(name, tick)
        self._loops.append(loop)
        loop.start()
        return loop
