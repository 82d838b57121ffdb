"""vLLM that never gets ready, dies, or leaves its memory behind."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults import invariants
from tests.faults.harness import Product, on_gpus, with_server
from tests.workers.supervisor.servers import free_port
from workers.supervisor.processes import procfs

pytestmark = pytest.mark.processes

ENDS = {
    "never_ready": ("vllm_not_ready", "didn't respond"),
    "wrong_name": ("vllm_not_ready", "Another server is responding"),
    "dies_on_start": ("vllm_exited", "initialization failed"),
    "dies_after:0.5": ("vllm_exited", "EngineDeadError"),
}
ENGINE = "VLLM::EngineCor"
DISPATCH = "from runs.engine.scheduling import dispatching\ndispatching.dispatch_ready()"
QUARANTINED = """
from runs.engine.models import Lease
result = list(Lease.objects.filter(state="quarantined").order_by("pk").values_list("pk", flat=True))
"""


IMPATIENT = "gpu_free_deadline_s:1,sample_s:0.1,attached_watch_s:0.1,server_silence_s:2"
"""A supervisor that waits for seconds where others wait for minutes."""
READY_WITHIN_S = {"never_ready": 3}


def test_a_server_that_does_not_come_up_or_stay_ends_its_run(product: Product) -> None:
    runs = {vllm: product.launch(with_server(ready_timeout_s=READY_WITHIN_S.get(vllm, 30)), vllm=vllm) for vllm in ENDS}
    for vllm, run in runs.items():
        reason, words = ENDS[vllm]
        row = invariants.check(run, status="failed", reason=reason)
        assert words in row["detail"], vllm


@pytest.mark.parametrize("role", ["front", "engine"])
def test_of_two_servers_one_dies(product: Product, role: str) -> None:
    run = product.launch(with_server(count=2), vllm="leaves_orphan")
    run.until_step(2)
    mine = set(run.living())
    engines = [row for row in procfs.table() if row.pid in mine and title(row.pid) == ENGINE]
    assert len(engines) == 2
    doomed = engines[1].identity if role == "engine" else procfs.identity(engines[1].ppid)
    assert doomed is not None
    assert procfs.send(doomed, signal.SIGKILL)
    row = invariants.check(run, status="failed", reason="vllm_exited")
    assert row["detail"].startswith("vllm"), "it is said which one"
    assert len(row["receipt"]["gpus"]) == 3


def test_a_server_that_hangs_ends_a_trainer_that_waits_for_it(product: Product) -> None:
    """One answers /health and serves nothing; one answers nothing any more."""
    hangs, stands = (
        product.launch(
            with_server(port=port), trainer=f"forever,ignore_term,generate:{port}", vllm=vllm, supervisor=IMPATIENT
        )
        for port, vllm in ((free_port(), "health_but_hangs"), (free_port(), ""))
    )
    stands.until_step(2)
    procfs.send(stands.processes()["vllm"].identity, signal.SIGSTOP)
    for run, words in ((hangs, "has generated no token since"), (stands, "has not responded since")):
        row = invariants.check(run, status="failed", reason="vllm_hung")
        assert words in row["detail"]
        assert row["receipt"]["port_free"] is True


def test_a_gpu_that_does_not_come_free_is_nobodys_until_an_operator_says_so(product: Product) -> None:
    run = product.launch(with_server(), supervisor=IMPATIENT)
    stuck = run.until_step(1)["placement"]["server_gpus"][0]
    product.gpus.others(stuck, 60_000)
    run.stop("now")
    row = invariants.check(run, status="stopped", reason="stopped_by_user", leases="quarantined")
    assert row["receipt"]["free"] is False
    beside = product.launch(on_gpus(6), trainer="steps:2")
    invariants.check(beside, status="succeeded", reason="completed")
    waiting = product.launch(on_gpus(8), trainer="steps:2")
    waiting.until(lambda seen: seen["waits_for"])
    product.gpus.others(stuck, 0)
    product.stack.django(DISPATCH)
    assert waiting.look()["status"] == "queued", "that the memory is free now is no proof"
    leases = product.stack.django(QUARANTINED)
    with product.stack.client("operator") as client:
        path = f"/hardware/leases/{leases[0]}/release/"
        assert client.post(path, data={"lease": leases}).status_code == 302
    invariants.check(waiting, status="succeeded", reason="completed")
    assert set(run.look()["leases"].values()) == {"released"}


def title(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
