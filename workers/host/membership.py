"""A host's membership of a control plane: joining, and the stored address, name, token and Redis user."""

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from workers.contract.wire.joining import TOLERATED_SKEW_S, VERSION, is_loopback
from workers.supervisor.reports.control import Control, ControlError, ControlRefused

TIMEOUT_S = 20
Report = Callable[[str], None]


class NotAMember(Exception):
    """Error for a machine that hasn't joined or can't join; the message says why."""


@dataclass(frozen=True)
class JoinArguments:
    url: str
    code: str
    name: str = ""
    ca_file: Path | None = None
    plaintext: bool = False


@dataclass(frozen=True)
class Membership:
    """The content of host.json in the host's folder, with mode 0600 because Redis's address contains a password."""

    control_url: str
    name: str
    redis_url: str
    ca_file: str = ""
    code_sha256: str = ""
    """Hash of the code that was used to join, by which a service that restarts with the same command knows that it has
    already joined."""


def join(arguments: JoinArguments, data: Path, *, report: Report) -> None:
    """Exchange the code for credentials and store them, unless this code was already used here. Raises NotAMember if
    the control plane can't be reached or refuses, or if an argument or the folder is unusable."""
    url = _checked_url(arguments)
    digest = hashlib.sha256(arguments.code.encode()).hexdigest()
    member_before = _read_stored(data)
    if member_before is not None and member_before.code_sha256 == digest:
        report(f"This machine has already joined {member_before.control_url} with this code, as {member_before.name}.")
        if member_before.control_url != url:
            _write(data, replace(member_before, control_url=url))
        return
    _make_folders(data)
    ca_file = arguments.ca_file.absolute() if arguments.ca_file else None
    response = _exchange(arguments, url, ca_file)
    redis_url = str(response["redis_url"])
    parts = urlsplit(redis_url)
    if parts.scheme != "rediss" and not is_loopback(parts.hostname or "") and not arguments.plaintext:
        report(
            f"Commands from Redis at {parts.hostname} are not encrypted, because the control plane is set up this way."
        )
    member = Membership(url, str(response["name"]), redis_url, str(ca_file or ""), digest)
    _write_private(data / "host_token", str(response["token"]))
    _write(data, member)
    report(f"Joined {url} as {member.name}. This host's files are in {data}.")
    _report_skew(response, report)


def read(data: Path) -> Membership:
    """Read the stored membership. Raises NotAMember if there is none or it can't be read."""
    stored_values = _read_stored(data)
    if stored_values is None:
        raise NotAMember(
            f"This machine hasn't joined a control plane: {data} contains no host.json. “Add a host” on the control "
            "plane's Hardware page shows the command to run here."
        )
    return stored_values


def _checked_url(arguments: JoinArguments) -> str:
    url = arguments.url
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_valid = False
    if not is_valid or parts.username or parts.query or parts.fragment:
        raise NotAMember(f"{url} is not an address such as https://control.example:8443.")
    if parts.scheme == "http" and not is_loopback(parts.hostname or "") and not arguments.plaintext:
        raise NotAMember(
            f"{url} is not encrypted, so anybody on the network could steal this host's token. Use https, or pass "
            "--plaintext if the network is private."
        )
    return url.rstrip("/")


def _exchange(arguments: JoinArguments, url: str, ca_file: Path | None) -> dict[str, object]:
    if ca_file is not None and not ca_file.is_file():
        raise NotAMember(f"{ca_file} does not exist.")
    body = {"code": arguments.code, "name": arguments.name, "hostname": socket.gethostname(), "version": VERSION}
    try:
        with closing(Control(url=url, token="", timeout_s=TIMEOUT_S, ca_file=ca_file)) as control:
            response = control.join(body)
    except ControlRefused as error:
        raise NotAMember(f"{url} refused to let this machine join: {error.text}") from None
    except ControlError as error:
        raise NotAMember(f"This machine could not join: {error}") from None
    missing_fields = [name for name in ("name", "token", "redis_url") if not isinstance(response.get(name), str)]
    if missing_fields:
        raise NotAMember(f"{url} responded, but not as a control plane: its response has no {missing_fields[0]}.")
    return response


def _report_skew(response: dict[str, object], report: Report) -> None:
    control_time = response.get("time")
    skew = time.time() - control_time if isinstance(control_time, int | float) else 0.0
    if abs(skew) > TOLERATED_SKEW_S:
        direction = "ahead of" if skew > 0 else "behind"
        report(
            f"This machine's clock is {abs(skew):.0f} s {direction} the control plane's. Runs don't depend on it, but "
            "please correct it."
        )


def _read_stored(data: Path) -> Membership | None:
    path = data / "host.json"
    try:
        return Membership(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise NotAMember(f"{path} can't be read ({error}). Remove it and join with a new code.") from None


def _make_folders(data: Path) -> None:
    try:
        for folder in (data, data / "runs", data / "models"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise NotAMember(f"{data} can't be used ({error.strerror}). Choose another folder with --data.") from None


def _write(data: Path, member: Membership) -> None:
    _write_private(data / "host.json", json.dumps(asdict(member), indent=2) + "\n")


def _write_private(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.rename(path)
