"""The users of hosts in Redis: each may touch the keys of its own queue, and nothing else.

Redis forgets users at a restart unless it has a file for them, so missing ones are made again from the stored hashes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import redis
from django.conf import settings

from controlplane.catalogue.joining.models import HostCredential
from workers.contract.wire.joining import is_loopback, queue_of, redis_keys

COMMANDS = (
    "ping", "select", "client|setname", "echo", "multi", "exec", "discard", "watch", "unwatch",
    "lpush", "rpush", "rpop", "brpop", "llen", "sadd", "srem", "smembers", "sismember", "scard", "exists", "type",
    "hset", "hget", "hdel", "zadd", "zrem", "zrange", "zrevrangebyscore", "zrangebyscore", "set", "get", "del",
    "expire", "pexpire", "eval", "evalsha", "script|load",
)  # fmt: skip
"""Commands of kombu's transport. None of them lists keys, reads other users, or changes the server."""
SETINFO, SETINFO_SINCE = "client|setinfo", (7, 2)
"""redis-py names itself with it and works without. A server that doesn't know a command refuses the whole user."""
TIMEOUT_S = 2
HOW = "Set REDIS_URL to a Redis that the machine can reach, with TLS and a password, and start again."


class NoUser(Exception):
    """The host's user could not be made."""


def problem() -> str:
    """Why no host on another machine could reach Redis, or ""."""
    if settings.HOST_REDIS_URL:
        return ""
    parts = urlsplit(settings.REDIS_URL)
    if not settings.REDIS_URL or parts.scheme == "unix":
        return f"The embedded Redis answers on this machine only. {HOW}"
    if is_loopback(parts.hostname or ""):
        return (
            f"REDIS_URL leads to {parts.hostname}, which is each machine's own. Set CONTROLPLANE_HOST_REDIS_URL to the "
            "address under which hosts reach the same Redis, and start again."
        )
    return ""


def user_of(name: str) -> str:
    """Several installations may share a server, each in a database of its own, but users are the server's."""
    mark = hashlib.sha256(f"users of {settings.SECRET_KEY}".encode()).hexdigest()[:8]
    return f"grpo-{mark}.{name}"


def url_for(name: str, password: str) -> str:
    """The address of Redis with the host's own user, and the control plane's database unless another is named."""
    ours = urlsplit(settings.REDIS_URL)
    # Options of REDIS_URL name files of this machine.
    parts = urlsplit(settings.HOST_REDIS_URL) if settings.HOST_REDIS_URL else ours._replace(query="")
    path = ours.path if parts.path in ("", "/") and ours.scheme != "unix" else parts.path
    netloc = f"{quote(user_of(name), safe='')}:{quote(password, safe='')}@{parts.netloc.rpartition('@')[2]}"
    return parts._replace(netloc=netloc, path=path).geturl()


def check() -> None:
    """Try whether users can be made at all, before a machine tries to join. Raises NoUser."""
    trial = user_of("").rstrip(".")
    with _told(), _client() as client:
        _send(client, "ACL SETUSER", trial, "off", *_commands(client))
        _send(client, "ACL DELUSER", trial)


def allow(credential: HostCredential) -> None:
    """Make or renew a host's user. Raises NoUser."""
    with _told(), _client() as client:
        _allow(client, credential)


def end(name: str) -> None:
    """Delete a host's user, which also closes its connections, and what waits in its queue. Raises redis.RedisError."""
    with _client() as client:
        _send(client, "ACL DELUSER", user_of(name))
        client.delete(queue_of(name))


def reconcile() -> None:
    """Make missing users again, and delete those whose host was revoked while Redis was away."""
    joined = list(HostCredential.objects.exclude(redis_sha256=""))
    if not joined:
        return
    wanted = {user_of(row.host_name): row for row in joined if row.revoked_at is None}
    prefix = user_of("")
    with _client() as client:
        there = {_text(name) for name in _send(client, "ACL USERS")}
        for name in wanted.keys() - there:
            _allow(client, wanted[name])
        for name in {name for name in there if name.startswith(prefix)} - wanted.keys():
            _send(client, "ACL DELUSER", name)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except redis.ConnectionError as error:
        raise NoUser(f"Redis can't be reached: {error}") from error
    except (redis.RedisError, OSError, ValueError) as error:
        raise NoUser(
            f"Redis makes no users for hosts: {error}. The user in REDIS_URL needs ACL SETUSER and ACL DELUSER."
        ) from error


def _allow(client: redis.Redis, credential: HostCredential) -> None:
    keys = [f"~{pattern}" for pattern in redis_keys(credential.host_name)]
    rules = ["reset", "on", f"#{credential.redis_sha256}", *keys, *_commands(client)]
    _send(client, "ACL SETUSER", user_of(credential.host_name), *rules)


def _commands(client: redis.Redis) -> list[str]:
    """Build the ACL rules of a user. Valkey, too, reports a compatible Redis version."""
    version = tuple(int(part) for part in str(client.info("server")["redis_version"]).split(".")[:2])
    return [f"+{name}" for name in (*COMMANDS, *([SETINFO] if version >= SETINFO_SINCE else []))]


def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=TIMEOUT_S, socket_timeout=TIMEOUT_S)


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _send(client: redis.Redis, command: str, *words: str) -> Any:
    return client.execute_command(command, *words)  # type: ignore[no-untyped-call]
