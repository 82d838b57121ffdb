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
REDIS_URL_FIX = "Set REDIS_URL to a Redis that the machine can reach, with TLS and a password, and restart."


class NoUser(Exception):
    """Failure to create a host's user."""


def problem() -> str:
    """Explain why hosts on other machines can't reach Redis; return "" if they can."""
    if settings.HOST_REDIS_URL:
        return ""
    url = urlsplit(settings.REDIS_URL)
    if not settings.REDIS_URL or url.scheme == "unix":
        return f"The embedded Redis only listens on this machine. {REDIS_URL_FIX}"
    if is_loopback(url.hostname or ""):
        return (
            f"REDIS_URL names {url.hostname}, which is local to each machine. Set CONTROLPLANE_HOST_REDIS_URL to the "
            "address under which hosts reach the same Redis, and restart."
        )
    return ""


def user_of(name: str) -> str:
    """Return the name of a host's user. The name is unique to this installation, since several installations may share
    a server, whose users have access to all databases."""
    installation = hashlib.sha256(f"users of {settings.SECRET_KEY}".encode()).hexdigest()[:8]
    return f"grpo-{installation}.{name}"


def url_for(name: str, password: str) -> str:
    """Build the URL by which a host connects to Redis, with its user and the control plane's database, unless
    HOST_REDIS_URL names another database."""
    own_url = urlsplit(settings.REDIS_URL)
    # Without the query, whose options name files of this machine.
    host_url = urlsplit(settings.HOST_REDIS_URL) if settings.HOST_REDIS_URL else own_url._replace(query="")
    path = own_url.path if host_url.path in ("", "/") and own_url.scheme != "unix" else host_url.path
    netloc = f"{quote(user_of(name), safe='')}:{quote(password, safe='')}@{host_url.netloc.rpartition('@')[2]}"
    return host_url._replace(netloc=netloc, path=path).geturl()


def check() -> None:
    """Check that users can be created, before a machine tries to join. Raises NoUser if they can't."""
    trial_user = user_of("").rstrip(".")
    with _errors_as_no_user(), _client() as client:
        _send(client, "ACL SETUSER", trial_user, "off", *_commands(client))
        _send(client, "ACL DELUSER", trial_user)


def allow(credential: HostCredential) -> None:
    """Create or update a host's user. Raises NoUser if Redis can't be reached or can't create users."""
    with _errors_as_no_user(), _client() as client:
        _allow(client, credential)


def delete(name: str) -> None:
    """Delete a host's queue and its user, which also closes the user's connections. Raises redis.RedisError if Redis
    can't be reached or refuses this."""
    with _client() as client:
        _send(client, "ACL DELUSER", user_of(name))
        client.delete(queue_of(name))


def reconcile() -> None:
    """Create missing users, and delete those of hosts that were revoked while Redis was down."""
    credentials = list(HostCredential.objects.exclude(redis_sha256=""))
    if not credentials:
        return
    active_by_user = {user_of(row.host_name): row for row in credentials if row.revoked_at is None}
    prefix = user_of("")
    with _client() as client:
        existing_users = set(_send(client, "ACL USERS"))
        for name in active_by_user.keys() - existing_users:
            _allow(client, active_by_user[name])
        for name in {name for name in existing_users if name.startswith(prefix)} - active_by_user.keys():
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
    """Create a client. Raises redis.ConnectionError if REDIS_URL is empty or not an address."""
    try:
        return redis.Redis.from_url(
            settings.REDIS_URL, socket_connect_timeout=TIMEOUT_S, socket_timeout=TIMEOUT_S, decode_responses=True
        )
    except ValueError as error:
        raise redis.ConnectionError(f"REDIS_URL can't be used: {error}") from error


def _send(client: redis.Redis, command: str, *arguments: str) -> Any:
    return client.execute_command(command, *arguments)  # type: ignore[no-untyped-call]
