"""The control plane's address and the token, from the environment or as stored by `grpoctl login`."""

import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

URL, TOKEN, TOKEN_FILE, INSECURE = "GRPOCTL_URL", "GRPOCTL_TOKEN", "GRPOCTL_TOKEN_FILE", "GRPOCTL_INSECURE"
DEFAULT_URL = "http://127.0.0.1:8000"


class NotConfigured(Exception):
    """Error for a missing or invalid setting; the message says which one, and how to provide it."""


@dataclass(frozen=True)
class Access:
    url: str
    token: str


def access() -> Access:
    """Return the address and the token. Raises NotConfigured if there is no token, or if the settings or the address
    can't be used."""
    stored_access = _stored_access()
    url = os.environ.get(URL) or stored_access.get("url") or DEFAULT_URL
    environment_token = os.environ.get(TOKEN) or _from_file(os.environ.get(TOKEN_FILE, ""))
    # A stored token is only sent to the address that it was stored with.
    token = environment_token or (stored_access.get("token", "") if stored_access.get("url") == check_url(url) else "")
    if not token:
        raise NotConfigured(
            f"There is no token for {url}. Create one under Settings, API tokens, then run: grpoctl login"
        )
    return Access(check_url(url), token)


def check_url(url: str) -> str:
    """Return the address without a trailing slash. Raises NotConfigured if it is invalid, or not
    encrypted without permission for that."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host = parts.hostname if parts.scheme in ("http", "https") and parts.port != 0 else None
    except ValueError:
        host = None
    if not host:
        raise NotConfigured(f"{url} is not a valid address. Use one like {DEFAULT_URL}.")
    if parts.scheme == "http" and not _is_loopback(host) and os.environ.get(INSECURE) != "1":
        raise NotConfigured(
            f"{url} is not encrypted: others on the network could read the token. Use https, or set {INSECURE}=1 if "
            "the network is yours alone."
        )
    return parts.geturl().rstrip("/")


def store(access: Access) -> Path:
    """Write the address and the token to a file that only its owner may read, and return the file's path."""
    path = _path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"url": access.url, "token": access.token}, file)
    draft.replace(path)
    return path


def forget() -> bool:
    """Delete the stored token, and return whether there was one."""
    path = _path()
    has_existed = path.exists()
    path.unlink(missing_ok=True)
    return has_existed


def _stored_access() -> dict[str, str]:
    path = _path()
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise NotConfigured(f"{path} can't be read: {error}. Remove it, then run: grpoctl login") from None
    return {name: str(content[name]) for name in ("url", "token") if name in content}


def _from_file(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotConfigured(f"{TOKEN_FILE}: {path} can't be read: {error}.") from None


def _path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "grpoctl" / "config.json"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
