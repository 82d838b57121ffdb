from __future__ import annotations

from pathlib import Path

import pytest
import redis

from controlplane.setup.serving import valkey as server


@pytest.mark.processes
def test_the_embedded_server_keeps_a_value(valkey: str) -> None:
    # Without the 5 s that redis-py gives a socket by itself: a busy machine takes as long as it takes.
    client = redis.Redis.from_url(valkey, socket_timeout=None, socket_connect_timeout=None)
    client.set("a", "1")
    assert client.get("a") == b"1"
    client.close()


def test_a_long_data_folder_gets_a_short_private_socket_path(tmp_path: Path) -> None:
    path = server.socket_path(tmp_path / ("deep" * 30))
    assert len(str(path)) < server.SOCKET_PATH_LIMIT
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.parent.rmdir()


def test_without_any_server_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(server.NoServer, match="set REDIS_URL"):
        server.find_server()
