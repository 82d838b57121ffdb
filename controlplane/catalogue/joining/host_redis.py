"""The hosts' users in Redis, each of which can access only the keys of its own queue.

Without an ACL file, Redis loses its users at a restart, so missing ones are created again from the stored hashes.
"""

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
"""Commands that kombu's transport uses. None of them lists keys, reads other users or changes the server."""
SETINFO, SETINFO_SINCE = "client|setinfo", (7, 2)
"""Optional command with which redis-py identifies itself, and the first version with it: older servers reject a user
with an unknown command."""
TIMEOUT_S = 2
HOW = "Set REDIS_URL to a Redis that the machine can reach, with TLS and a password, and restart."


class NoUser(Exception):
    """Failure to create a host's user."""


def problem() -> str:
    """Explain why hosts on other machines can't reach Redis; "" if they can."""
    if settings.HOST_REDIS_URL:
        return ""
    parts = urlsplit(settings.REDIS_URL)
    if not settings.REDIS_URL or parts.scheme == "unix":
        return f"The embedded Redis only listens on this machine. {HOW}"
    if is_loopback(parts.hostname or ""):
        return (
            f"REDIS_URL names {parts.hostname}, which is local to each machine. Set CONTROLPLANE_HOST_REDIS_URL to the "
            "address under which hosts reach the same Redis, and restart."
        )
    return ""


def user_of(name: str) -> str:
    """Return the name of a host's user, unique to this installation: several installations may share a server, whose
    users are common to all databases."""
    mark = hashlib.sha256(f"users of {settings.SECRET_KEY}".encode()).hexdigest()[:8]
    return f"grpo-{mark}.{name}"


def url_for(name: str, password: str) -> str:
    """Build the URL by which a host connects to Redis, with its user and the control plane's database, unless
    HOST_REDIS_URL names another."""
    ours = urlsplit(settings.REDIS_URL)
    # Without the query, whose options name files of this machine.
    parts = urlsplit(settings.HOST_REDIS_URL) if settings.HOST_REDIS_URL else ours._replace(query="")
    path = ours.path if parts.path in ("", "/") and ours.scheme != "unix" else parts.path
    netloc = f"{quote(user_of(name), safe='')}:{quote(password, safe='')}@{parts.netloc.rpartition('@')[2]}"
    return parts._replace(netloc=netloc, path=path).geturl()


def check() -> None:
    """Check that users can be created, before a machine tries to join. Raises NoUser if they can't."""
    trial_user = user_of("").rstrip(".")
    with _errors_as_no_user(), _client() as client:
        _send(client, "ACL SETUSER", trial_user, "off", *_commands(client))
        _send(client, "ACL DELUSER", trial_user)


def allow(credential: HostCredential) -> None:
    """Create or update a host's user. Raises NoUser."""
    with _errors_as_no_user(), _client() as client:
        _allow(client, credential)


def delete(name: str) -> None:
    """Delete a host's queue and its user, which also closes the user's connections. Raises redis.RedisError."""
    with _client() as client:
        _send(client, "ACL DELUSER", user_of(name))
        client.delete(queue_of(name))


def reconcile() -> None:
    """Create missing users, and delete those of hosts that were revoked while Redis was down."""
    joined = list(HostCredential.objects.exclude(redis_sha256=""))
    if not joined:
        return
    active = {user_of(row.host_name): row for row in joined if row.revoked_at is None}
    prefix = user_of("")
    with _client() as client:
        existing = set(_send(client, "ACL USERS"))
        for name in active.keys() - existing:
            _allow(client, active[name])
        for name in {name for name in existing if name.startswith(prefix)} - active.keys():
            _send(client, "ACL DELUSER", name)


@contextlib.contextmanager
def _errors_as_no_user() -> Iterator[None]:
    try:
        yield
    except redis.ConnectionError as error:
        raise NoUser(f"Redis can't be reached: {error}") from error
    except (redis.RedisError, OSError, ValueError) as error:
        raise NoUser(
            f"Redis can't create users for hosts: {error}. The user in REDIS_URL needs ACL SETUSER and ACL DELUSER."
        ) from error


def _allow(client: redis.Redis, credential: HostCredential) -> None:
    keys = [f"~{pattern}" for pattern in redis_keys(credential.host_name)]
    rules = ["reset", "on", f"#{credential.redis_sha256}", *keys, *_commands(client)]
    _send(client, "ACL SETUSER", user_of(credential.host_name), *rules)


def _commands(client: redis.Redis) -> list[str]:
    version = tuple(int(part) for part in str(client.info("server")["redis_version"]).split(".")[:2])
    return [f"+{name}" for name in (*COMMANDS, *([SETINFO] if version >= SETINFO_SINCE else []))]


def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=TIMEOUT_S, socket_timeout=TIMEOUT_S, decode_responses=True
    )


def _send(client: redis.Redis, command: str, *arguments: str) -> Any:
    return client.execute_command(command, *arguments)  # type: ignore[no-untyped-call]
