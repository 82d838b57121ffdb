"""Addresses of Redis and PostgreSQL over which secrets would travel in the open."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.platform import plaintext
from controlplane.platform.database import URL_VARIABLE, databases
from controlplane.platform.environment import EnvironmentUnusable
from workers.contract.wire.names import broker_url

REDIS = {
    "": "",
    "unix:///run/redis.sock": "",
    "redis://127.0.0.1:6379/0": "",
    "redis://localhost/0": "",
    "redis://[::1]:6379/0": "",
    "rediss://:pw@redis.example/0": "",
    "rediss://redis.example/0?ssl_certfile=/c.pem&ssl_keyfile=/k.pem": "",
    "redis://:pw@redis.example/0": "without TLS:",
    "rediss://redis.example/0": "without a password:",
    "redis://10.0.0.5/0": "without TLS and a password:",
    "redis://0.0.0.0/0": "without TLS and a password:",
    "http://redis.example": "must begin with",
    "redis://[::1/0": "can't be parsed",
}
POSTGRESQL = {
    "postgresql:///grpo": "",
    "postgresql:///grpo?host=/run/postgresql": "",
    "postgresql://ann:pw@127.0.0.1/grpo": "",
    "postgresql://ann:pw@db/grpo?sslmode=verify-full": "",
    "postgresql://db/grpo?sslmode=require&sslcert=/c.pem": "",
    "postgresql://ann:pw@db/grpo": "without TLS:",
    "postgresql://ann:pw@db/grpo?sslmode=prefer": "without TLS:",
    "postgresql://db/grpo?sslmode=require": "without a password:",
    "postgresql:///grpo?host=127.0.0.1,db": "without TLS and a password:",
}


@pytest.fixture(autouse=True)
def nothing_else_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    for name in ("PGSSLMODE", "PGPASSWORD", plaintext.ALLOW):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("url", "why"), REDIS.items())
def test_an_open_redis_is_refused(url: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    if not why:
        assert plaintext.encrypted_redis("REDIS_URL") == url
        return
    with pytest.raises(EnvironmentUnusable, match=f"REDIS_URL .*{why}"):
        plaintext.encrypted_redis("REDIS_URL")


@pytest.mark.parametrize(("url", "why"), POSTGRESQL.items())
def test_an_open_postgresql_is_refused(url: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(URL_VARIABLE, url)
    if not why:
        assert databases(tmp_path)
        return
    with pytest.raises(EnvironmentUnusable, match=f"{URL_VARIABLE} .*{why}") as raised:
        databases(tmp_path)
    assert "pw" not in str(raised.value)


def test_who_says_it_twice_may(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(plaintext.ALLOW, "allow")
    monkeypatch.setenv("REDIS_URL", "redis://redis/0")
    monkeypatch.setenv(URL_VARIABLE, "postgresql://db/grpo")
    assert plaintext.encrypted_redis("REDIS_URL") == "redis://redis/0"
    assert databases(tmp_path)["default"]["HOST"] == "db"


def test_the_certificate_of_redis_is_checked_unless_somebody_says_otherwise() -> None:
    assert broker_url("rediss://h/0") == "rediss://h/0?ssl_cert_reqs=required"
    assert broker_url("rediss://h/0?ssl_ca_certs=/c") == "rediss://h/0?ssl_ca_certs=/c&ssl_cert_reqs=required"
    assert broker_url("rediss://h/0?ssl_cert_reqs=none") == "rediss://h/0?ssl_cert_reqs=none"
