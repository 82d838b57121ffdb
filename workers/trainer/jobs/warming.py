"""The job that keeps a vLLM server warm: it waits, unloads the adapters of ended runs, and ends on request.

FileName.WARM says who is using the server and whether it must end. Standard library only: no GPU, no torch.
"""

import time

from workers.contract.run.jobs import WarmNews
from workers.contract.run.spec import servers_of
from workers.contract.stack.commands import served_name
from workers.contract.stack.warm import model_files
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import FileName
from workers.trainer.jobs import ModelJob
from workers.trainer.rollouts.vllm_client import AdapterClient, ServerError, adapter_prefix

POLL_S = 0.2
CHECK_FILES_EVERY_S = 2.0
FILES_CHANGED = "The model's files on this host have changed since the server was started."


def run(job: ModelJob, _settings: None) -> None:
    spec = job.spec
    settings = spec.run.hardware.server
    timeout_s = float(settings.request_timeout_s) if settings else 60.0
    clients = [
        AdapterClient(server.address, served_name(spec, server), request_timeout_s=timeout_s, role=server.role)
        for server in servers_of(spec)
    ]
    job.begin(1)
    if reason := _wait(job, clients):
        job.result(reason)


def _wait(job: ModelJob, clients: list[AdapterClient]) -> str:
    """Wait until the server must end, and return the reason; "" after a stop."""
    model = job.spec.run.model
    files, checked_at, unloaded_count = (job.folder / FileName.MODEL_FILES).read_text(), time.monotonic(), 0
    while not job.stop_requested:
        news = from_dict(WarmNews, job.document(FileName.WARM))
        if news.leave:
            return news.leave
        if unloaded_count < len(news.former) and _unload(clients, news.former[unloaded_count]):
            unloaded_count += 1
        if not news.user and time.monotonic() - checked_at >= CHECK_FILES_EVERY_S:
            checked_at = time.monotonic()
            if model_files(model.path, model.revision) != files:
                return FILES_CHANGED
        time.sleep(POLL_S)
    return ""


def _unload(clients: list[AdapterClient], user: str) -> bool:
    """Unload the adapters of an attempt that has ended; those of the next attempt may already be loaded. Return whether
    this succeeded."""
    try:
        for client in clients:
            client.unload_all(adapter_prefix(user))
    except ServerError:
        return False
    return True
