"""The first steps of an attempt: dataset and GPU baselines, then the start of the vLLM servers and the trainer."""

import os

from workers.contract.run import jobs
from workers.contract.run.hardware import WeightSync
from workers.contract.stack import commands as stack
from workers.contract.wire.names import EndReason, FileName, Phase
from workers.supervisor import claim, commands
from workers.supervisor.end_reasons import End
from workers.supervisor.processes.child import TRAINER
from workers.supervisor.processes.gpus import GpuReading
from workers.supervisor.processes.loops import BackgroundCall
from workers.supervisor.reports.control import Control
from workers.supervisor.servers import compilecache
from workers.supervisor.servers.vllm import describe_memory
from workers.supervisor.servers.warmth import OTHER_FILES, files_of
from workers.supervisor.steps import AttemptStep, Outcome, StepContext, StepWork

DRIVER_PATIENCE = 4
"""Multiple of `gpu_free_deadline_s` within which a GPU driver must respond."""


class Preparing(StepWork):
    """The step that gets the dataset and the GPUs' baselines, in two threads that the main thread polls. `stores`:
    whether there is an artifact store."""

    def __init__(self, context: StepContext, control: Control, *, stores: bool) -> None:
        super().__init__(context)
        self._control = control
        self._stores = stores
        self._dataset: BackgroundCall[None] | None = None
        self._baselines: BackgroundCall[dict[int, int]] | None = None
        self._readings: list[GpuReading] = []
        self._deadline = float("inf")

    def begin(self, now: float) -> Outcome:
        context, spec, settings = self._context, self._context.spec, self._context.settings
        self._deadline = now + DRIVER_PATIENCE * settings.gpu_free_deadline_s
        problem = claim.spec_problem(spec)
        if problem:
            return End(EndReason.SPEC_REFUSED, problem)
        context.report.phase(Phase.PREPARING, "fetching the dataset")
        gpus, server = spec.placement.every_gpu, spec.run.hardware.vllm_server
        attached = server.attached if server and server.weight_sync == WeightSync.NCCL else ()
        self._dataset = BackgroundCall(
            "dataset", lambda: claim.prepare(spec, settings, self._control, context.folder, stores=self._stores)
        )
        self._baselines = BackgroundCall(
            "baselines", lambda: claim.gpu_baselines(gpus, settings, self._read_gpus, attached)
        )
        context.report.sample_system(gpus, context.read_gpus, context.figures.on_system_sample)
        return None

    def _read_gpus(self) -> list[GpuReading]:
        self._readings = self._context.read_gpus()
        return self._readings

    def tick(self, now: float) -> Outcome:
        context, dataset, baselines = self._context, self._dataset, self._baselines
        if dataset is None or baselines is None:
            return None
        is_prepared = dataset.done and baselines.done
        for call in (dataset, baselines):
            if call.error is not None:
                return claim.end_for(call.error)
        if not is_prepared:
            return None if baselines.done else self._driver_timeout(now)
        context.children.baselines = baselines.value()
        context.figures.gpus = tuple(context.children.baselines)
        models = {gpu.name for gpu in self._readings if gpu.index in context.children.baselines}
        context.caches = compilecache.variables(context.settings, os.environ, models)
        if commands.needs_download(context.spec):
            return AttemptStep.FETCHING
        return after_fetching(context)

    def _driver_timeout(self, now: float) -> End | None:
        """Return the attempt's end if the GPUs' driver isn't responding: a call to it may never return. The dataset has
        its own deadline."""
        if now < self._deadline:
            return None
        seconds = DRIVER_PATIENCE * self._context.settings.gpu_free_deadline_s
        return End(
            EndReason.LAUNCH_FAILED, f"The GPU driver isn't responding: nothing could be read for {seconds:g} s."
        )


def after_fetching(context: StepContext) -> AttemptStep:
    return AttemptStep.SERVERS_STARTING if context.servers.places else AttemptStep.TRAINING


def start_trainer(context: StepContext, *, waits: bool) -> End | None:
    """Start the trainer; return the attempt's end if that fails. `waits`: the trainer sends no request to a server
    before FileName.SERVERS_READY exists."""
    argv = stack.trainer_argv(context.folder.path, commands.programs(context.settings))
    environment = commands.trainer_environment(context.spec, context.settings, os.environ, context.secrets)
    return context.start(TRAINER, argv, environment | context.caches | ({stack.AWAIT_SERVERS: "1"} if waits else {}))


class ServersStarting(StepWork):
    """The step that starts all servers at once and, if possible, the trainer too, whose startup takes as long."""

    _ready = 0
    _files = ""

    def begin(self, now: float) -> Outcome:
        context, servers = self._context, self._context.servers
        port = servers.port_in_use()
        if port is not None:
            return End(EndReason.PORT_IN_USE, f"Port {port} is in use by another process on this host.")
        if servers.lease:
            self._files = files_of(context.spec)
            note = f"This run uses the warm server {servers.lease.attempt_id}, which continues after the run ends."
            context.report.note(note)
        elif servers.attached:
            self._warn()
        if context.spec.run.kind == jobs.WARM:
            context.folder.write(FileName.MODEL_FILES, files_of(context.spec))
        context.report.phase(Phase.VLLM_STARTING, self._progress())
        for place in servers.own:
            argv = stack.server_argv(context.spec, place, commands.programs(context.settings))
            environment = commands.server_environment(context.spec, context.settings, os.environ, place)
            failure = context.start(place.role, argv, environment | context.caches)
            if failure is not None:
                return failure
        servers.probe(now)
        return start_trainer(context, waits=True) if self._can_start_together() else None

    def _can_start_together(self) -> bool:
        """Return whether to start the trainer while its servers start. On a shared GPU each would count the other's
        memory as its own, and a job may use its server immediately."""
        spec = self._context.spec
        server_gpus = {gpu for place in self._context.servers.own for gpu in place.gpus}
        is_possible = server_gpus.isdisjoint(spec.placement.gpus) and spec.run.kind not in jobs.KINDS
        return is_possible and self._context.settings.side_by_side

    def on_exits(self, now: float) -> Outcome:
        context = self._context
        trainer = context.trainer_exit
        return context.server_end() or (context.trainer_end(trainer) if trainer else None)

    def tick(self, now: float) -> Outcome:
        context, servers = self._context, self._context.servers
        ready_count = servers.ready()
        if servers.lease and (lost_end := context.lost_server(after_s=0.0)):
            return lost_end
        if ready_count == len(servers.places):
            if servers.lease and servers.lease.files() != self._files:
                return End(EndReason.LAUNCH_FAILED, OTHER_FILES)
            context.report.phase(Phase.VLLM_READY)
            for place in servers.own:
                if memory_note := describe_memory(context.folder.log(place.role)):
                    context.report.note(memory_note if len(servers.own) == 1 else f"{place.role}: {memory_note}")
            servers.pulses = context.report.sample_servers(servers.addresses, context.figures.on_server_sample)
            context.folder.write(FileName.SERVERS_READY, "")
            return AttemptStep.TRAINING
        if ready_count != self._ready:
            self._ready = ready_count
            context.report.phase(Phase.VLLM_STARTING, self._progress())
        late_servers = servers.describe_late(now)
        return End(EndReason.VLLM_NOT_READY, late_servers) if late_servers else None

    def _progress(self) -> str:
        count = len(self._context.servers.places)
        return f"{self._ready} of {count} are ready" if count > 1 else ""

    def _warn(self) -> None:
        names = ", ".join(place.address for place in self._context.servers.attached)
        self._context.report.note(
            f"This run uses {names} but neither starts nor stops that server. It can't prove whose process responds "
            "there, which weights it has, or that its GPUs and port are free: the receipt covers only this run's own "
            "processes.",
            level="warning",
        )
