"""Exchange of a machine's join code for credentials, in one transaction or refused with a reason."""

from dataclasses import dataclass

from django.db import IntegrityError, transaction

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.joining import codes, credentials, host_redis
from workers.contract.wire.joining import HOST_NAME, HOST_NAME_WORDS, version_problem


class NotJoined(Exception):
    """Refusal to let a machine join, with the reason."""

    def __init__(self, status: int, what: str, *, where: str, fix: str = "") -> None:
        super().__init__(what)
        self.status, self.what, self.where, self.fix = status, what, where, fix


@dataclass(frozen=True)
class JoinResult:
    name: str
    token: str
    redis_url: str


def join(code: str, *, name: str, hostname: str, version: str) -> JoinResult:
    """Register a machine as a host, and return its credentials. The host gets the name of the code, or else `name` (the
    machine's --name), or else `hostname`. Raises NotJoined if the code, the name or the machine's version can't be
    accepted."""
    if problem := version_problem(version):
        raise NotJoined(426, problem, where="version")
    row = codes.find(code)
    problem = codes.problem(row)
    if row is None or problem:
        raise NotJoined(403, problem, where="code", fix="Create a new one on the Hardware page.")
    if row.host_name and name and name != row.host_name:
        raise NotJoined(409, f"This code is for a host named {row.host_name}, not {name}.", where="name")
    host_name = row.host_name or name or hostname
    if not HOST_NAME.fullmatch(host_name):
        raise NotJoined(400, f"{host_name[:80]!r} can't be a host's name: {HOST_NAME_WORDS}.", where="name", fix=RENAME)
    if problem := host_redis.problem():
        raise NotJoined(409, problem, where="redis")
    try:
        with transaction.atomic():
            issued = credentials.issue(host_name, by=row.created_by)
            if not codes.use_up(row, host_name):
                raise NotJoined(403, "Another machine has just used this join code.", where="code")
            # Show the host on the Hardware page before its first announcement.
            Host.every.update_or_create(name=host_name, defaults={"removed_at": None})
            # Last, so that the transaction rolls everything back if this fails.
            host_redis.allow(issued.credential)
    except credentials.HostNameTaken as error:
        raise NotJoined(409, str(error), where="name", fix=NAME_TAKEN_FIX) from None
    except IntegrityError:
        raise NotJoined(
            409, f"A host named {host_name} has already joined.", where="name", fix=NAME_TAKEN_FIX
        ) from None
    except host_redis.NoUser as error:
        raise NotJoined(503, str(error), where="redis", fix=RETRY_FIX) from None
    return JoinResult(host_name, issued.token, host_redis.url_for(host_name, issued.redis_password))


RETRY_FIX = "The code is still valid: run the same command again."
RENAME = "Choose another name with --name."
NAME_TAKEN_FIX = (
    "Choose another name with --name, or revoke that host on the Hardware page if this machine replaces it."
)
