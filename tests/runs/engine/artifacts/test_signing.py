"""A host's requests to the artifact store, which has no keys: only those for its own run's checkpoints are signed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection

from runs.engine.artifacts import signing
from runs.engine.artifacts.signing import NotSigned
from runs.engine.models import Attempt
from tests.controlplane.platform.accounts.secret_rows import a_store
from tests.fakes.object_store import BUCKET, ObjectStore, object_store
from tests.runs.builders import an_attempt
from workers.artifactstore import ArtifactStore
from workers.contract.wire.artifacts import Store, StoreRequest

pytestmark = pytest.mark.django_db

MINE, NEEDED = "mine/1/checkpoints/checkpoint-4", "theirs/2/checkpoints/checkpoint-8"
"""`mine` stands for the run of the attempt."""
SHA256 = "x-amz-meta-sha256"


@pytest.fixture
def attempt() -> Attempt:
    a_store()
    attempt = an_attempt()
    attempt.resume_from = NEEDED
    return attempt


def may(attempt: Attempt, method: str, path: str, query: str = "", **headers: str) -> bool:
    path, query = (part.replace("mine", attempt.run_id) for part in (path, query))
    try:
        url = signing.sign(attempt, StoreRequest(method, path, query, headers))
    except NotSigned:
        return False
    assert url.startswith("https://s3.example.com/grpo")
    assert "SECRET" not in url
    return True


ALLOWED = [
    ("PUT", f"/grpo/team/{MINE}/model.safetensors", ""),
    ("PUT", f"/grpo/team/{MINE}/more/a%20b.pt", "partNumber=3&uploadId=x%2Fy"),
    ("POST", f"/grpo/team/{MINE}/model.safetensors", "uploads"),
    ("POST", f"/grpo/team/{MINE}/model.safetensors", "uploadId=x"),
    ("DELETE", f"/grpo/team/{MINE}/model.safetensors", ""),
    ("HEAD", f"/grpo/team/{MINE}", ""),
    ("GET", f"/grpo/team/{NEEDED}/model.safetensors", ""),
    ("GET", "/grpo", f"list-type=2&prefix=team%2F{NEEDED}%2F&delimiter=&encoding-type=url"),
    ("GET", "/grpo/", f"list-type=2&prefix=team%2F{MINE}%2F&max-keys=1"),
]
REFUSED = [
    ("PUT", f"/grpo/team/{NEEDED}/model.safetensors", ""),
    ("DELETE", f"/grpo/team/{NEEDED}/model.safetensors", ""),
    ("GET", "/grpo/team/other/1/checkpoints/checkpoint-4/model.safetensors", ""),
    ("PUT", "/grpo/team/mine/11/checkpoints/checkpoint-4/model.safetensors", ""),
    ("PUT", "/grpo/team/mine/1/checkpoints/checkpoint-4x/model.safetensors", ""),
    ("PUT", "/grpo/team/mine/1/logs/trainer.log", ""),
    ("GET", "/grpo/team/datasets/abc", ""),
    ("PUT", f"/grpo/{MINE}/model.safetensors", ""),
    ("PUT", f"/grpo/team/team/{MINE}/model.safetensors", ""),
    ("PUT", f"/grpo//team/{MINE}/model.safetensors", ""),
    ("PUT", f"/another/team/{MINE}/model.safetensors", ""),
    ("GET", f"/grpo/team/{MINE}/../../../../theirs/2/x", ""),
    ("GET", f"/grpo/team/{MINE}/%2e%2e/%2e%2e/%2e%2e/x", ""),
    ("PUT", f"/grpo/team/{MINE}/./x", ""),
    ("PUT", f"/grpo/team/{MINE}//x", ""),
    ("PUT", f"/grpo/team/{MINE}/x", "acl"),
    ("PUT", f"/grpo/team/{MINE}/x", "partNumber=1&uploadId=a&uploadId=b&tagging"),
    ("GET", f"/grpo/team/{MINE}/x", "versionId=1"),
    ("POST", "/grpo", "delete"),
    ("POST", f"/grpo/team/{MINE}/x", "select&select-type=2"),
    ("DELETE", "/grpo", ""),
    ("PUT", "/grpo", "policy"),
    ("GET", "/grpo", ""),
    ("GET", "/grpo", "list-type=2"),
    ("GET", "/grpo", "list-type=2&prefix="),
    ("GET", "/grpo", "list-type=2&prefix=team%2F"),
    ("GET", "/grpo", "list-type=2&prefix=team%2Fmine%2F1%2Fcheckpoints%2Fcheckpoint-4"),
    ("GET", "/grpo", f"list-type=2&prefix=team%2F{MINE}%2F&start-after=x"),
    ("GET", "/", ""),
    ("TRACE", f"/grpo/team/{MINE}/x", ""),
]


def test_a_host_changes_its_own_attempts_checkpoints_and_reads_what_it_needs(
    attempt: Attempt, subtests: pytest.Subtests
) -> None:
    for rows, allowed in ((ALLOWED, True), (REFUSED, False)):
        for row in rows:
            with subtests.test(row=row):
                assert may(attempt, *row) is allowed


def test_without_a_prefix_runs_are_at_the_buckets_top(attempt: Attempt) -> None:
    a_store("https://s3.example.com/grpo")
    assert may(attempt, "PUT", f"/grpo/{MINE}/x")
    assert not may(attempt, "PUT", f"/grpo/team/{MINE}/x")


def test_only_the_files_hash_goes_with_a_request(attempt: Attempt) -> None:
    path = f"/grpo/team/{MINE}/x"
    assert may(attempt, "PUT", path, **{SHA256: "0"})
    for name in ("x-amz-copy-source", "x-amz-acl", "x-amz-website-redirect-location", "host"):
        assert not may(attempt, "PUT", path, **{SHA256: "0", name: "/grpo/team/theirs"})


def test_a_signature_is_for_one_request_and_ends(attempt: Attempt) -> None:
    path = f"/grpo/team/{MINE}/a%20b".replace("mine", attempt.run_id)
    url = signing.sign(attempt, StoreRequest("PUT", path, "", {SHA256: "0"}))
    signed = parse_qs(urlsplit(url).query)
    assert urlsplit(url).path == path
    assert (signed["X-Amz-SignedHeaders"], signed["X-Amz-Expires"]) == ([f"host;{SHA256}"], ["900"])


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


def signed_in_a_thread(attempt: Attempt, request: StoreRequest) -> str:
    try:
        return signing.sign(attempt, request)
    finally:
        connection.close()


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_hosts_client_stores_fetches_and_removes_its_own_and_nothing_else(
    attempt: Attempt, server: ObjectStore, tmp_path: Path
) -> None:
    with_keys = server.store
    a_store(f"{with_keys.endpoint}/{BUCKET}/team?region=us-east-1", "id:secret")
    keyless = Store(with_keys.endpoint, with_keys.bucket, with_keys.prefix, with_keys.region)
    host, mine = ArtifactStore(keyless, sign=partial(signed_in_a_thread, attempt)), MINE.replace("mine", attempt.run_id)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/a b.pt").write_bytes(b"weights")
    with open(tmp_path / "saved/large.pt", "wb") as file:
        file.truncate(101 * 2**20)  # sent in parts
    ArtifactStore(with_keys).upload(tmp_path / "saved", "other/1/checkpoints/checkpoint-4")
    manifest = host.upload(tmp_path / "saved", mine)
    host.download(mine, tmp_path / "fetched", manifest_sha256=manifest)
    assert (tmp_path / "fetched/a b.pt").read_bytes() == b"weights"
    assert (tmp_path / "fetched/large.pt").stat().st_size == 101 * 2**20
    for attack in (
        partial(host.remove, "other/1/checkpoints/checkpoint-4"),
        partial(host.upload, tmp_path / "saved", "other/1/checkpoints/checkpoint-4"),
        partial(host.download, "other/1/checkpoints/checkpoint-4", tmp_path / "stolen", manifest_sha256=manifest),
    ):
        with pytest.raises(NotSigned):
            attack()
    host.remove(mine)
    assert {name.rsplit("/", 1)[0] for name in server.names()} == {"other/1/checkpoints/checkpoint-4"}
