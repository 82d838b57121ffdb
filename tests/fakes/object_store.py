"""An S3-compatible store in a process of its own: moto's server, with a bucket.

No package brings a real S3 server, so this is the one that uploads and downloads are tested against.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import boto3

from tests.waiting import wait_until
from tests.workers.supervisor.servers import free_port
from workers.contract.wire.artifacts import Store

BUCKET = "grpo"


class ObjectStore:
    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.store = Store(f"http://127.0.0.1:{port}", BUCKET, "team", "us-east-1", "id", "secret")
        self.process = process
        self.client = boto3.client(
            "s3",
            endpoint_url=self.store.endpoint,
            region_name="us-east-1",
            aws_access_key_id="id",
            aws_secret_access_key="secret",
        )

    def names(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return [each["Key"].removeprefix("team/") for each in found]

    def hang(self) -> None:
        """It accepts connections and answers nothing."""
        os.kill(self.process.pid, signal.SIGSTOP)


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    made = ObjectStore(port, process)
    try:
        wait_until(lambda: _has_bucket(made))
        yield made
    finally:
        made.client.close()
        process.kill()
        process.wait()


def _has_bucket(made: ObjectStore) -> bool:
    try:
        made.client.create_bucket(Bucket=BUCKET)
    except Exception:
        assert made.process.poll() is None, "moto's server has ended"
        return False
    return True
