"""The upkeep of the artifact store: uploads that are asked for again, and removals that need no host."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from runs.engine import checkpoints, deletions
from runs.engine.artifacts import upkeep
from runs.engine.artifacts.models import StoredCopy
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Attempt
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.intake.host_api import ingest
from tests.controlplane.people import operator, viewer
from tests.controlplane.platform.accounts.secret_rows import a_store
from tests.fakes.object_store import BUCKET, ObjectStore, object_store
from tests.runs.builders import a_user, event
from tests.runs.conftest import Sent
from tests.runs.engine.artifacts.test_copies import PATH, post, saved, tell
from workers.contract.wire.names import Task

__all__ = ["saved"]
pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


def look() -> None:
    """As if all were due."""
    StoredCopy.objects.exclude(next_at=None).update(next_at=timezone.now())
    upkeep.reconcile(timezone.now())


def end(attempt: Attempt) -> None:
    attempt.refresh_from_db()
    move(attempt, RunStatus.FAILED, reason="host_lost", actor="test")


def checkpoint(attempt: Attempt, path: str = PATH) -> Checkpoint:
    found = checkpoints.by_folder(f"{attempt.run_id}/1/{path}")
    assert found
    return found


def test_what_was_not_stored_is_asked_for_after_the_end_until_it_is(saved: Attempt, sent: Sent) -> None:
    a_store()
    tell(saved, "failed", problem="The store is full.")
    look()
    assert sent.of(Task.STORE_MODEL) == []  # the run goes on, and uploads by itself
    end(saved)
    look()
    Attempt.objects.update(ended_at=timezone.now() - timedelta(days=9))
    ingest.accept(saved, [event(3, "ended", reason="host_lost")])
    [[folder, _]] = sent.of(Task.STORE_MODEL)
    assert (folder, post(saved, "store").status_code) == (checkpoint(saved).folder, 200)
    tell(saved, "stored", manifest="a" * 64)
    look()
    assert StoredCopy.objects.get().next_at is None
    assert post(saved, "store").status_code == 403  # nobody has asked


def test_a_lost_hosts_model_is_deleted_with_its_copy(saved: Attempt, sent: Sent, server: ObjectStore) -> None:
    a_store(f"{server.store.endpoint}/{BUCKET}/team?region=us-east-1", "id:secret")
    server.client.put_object(Bucket=BUCKET, Key=f"team/{saved.run_id}/1/{PATH}/model.safetensors", Body=b"weights")
    server.client.put_object(Bucket=BUCKET, Key="team/other/1/checkpoints/checkpoint-10/a", Body=b"another's")
    tell(saved, "stored", manifest="a" * 64)
    end(saved)
    Host.objects.update(removed_at=timezone.now())
    page = f"/models/{checkpoint(saved).event.pk}/"
    asked = operator().get(page).content.decode()
    assert "box is gone, so files that are still on its disk stay there." in asked
    assert "Its copy in the artifact store is removed as well." in asked
    assert "This model was deleted" in operator().post(f"{page}delete", follow=True).content.decode()
    upkeep.reconcile(timezone.now())
    assert server.names() == ["other/1/checkpoints/checkpoint-10/a"]
    assert not checkpoint(saved).in_store
    assert not StoredCopy.objects.exists()


def test_while_its_host_is_away_the_copy_goes_at_once_and_the_files_later(saved: Attempt, sent: Sent) -> None:
    tell(saved, "stored", manifest="a" * 64)
    end(saved)
    Host.objects.update(announced_at=None)
    deletions.request(checkpoint(saved), a_user())
    assert checkpoint(saved).is_being_deleted
    assert [StoredCopy.objects.get().wanted, len(sent.of(Task.DELETE_MODEL))] == [False, 1]


def test_what_stays_in_the_store_is_said_with_the_reason(saved: Attempt, sent: Sent) -> None:
    a_store("http://127.0.0.1:9/grpo")
    tell(saved, "stored", manifest="a" * 64)
    end(saved)
    Host.objects.update(removed_at=timezone.now())
    deletions.request(checkpoint(saved), a_user())
    upkeep.reconcile(timezone.now())
    shown = viewer().get(f"/runs/{saved.run_id}/checkpoints/").content.decode()
    assert "still in the store" in shown
    assert "can&#x27;t be reached" in shown


def test_a_copy_of_what_the_trainer_has_removed_goes_when_its_host_could_not(
    saved: Attempt, sent: Sent, server: ObjectStore
) -> None:
    a_store(f"{server.store.endpoint}/{BUCKET}/team?region=us-east-1", "id:secret")
    tell(saved, "stored", manifest="a" * 64)
    ingest.accept(saved, [event(3, "checkpoint", step=30, path="checkpoints/checkpoint-30", kept=[20, 30])])
    end(saved)
    look()
    assert saved.run.events.filter(kind="checkpoint_unstored").exists()
    assert not StoredCopy.objects.exists()
