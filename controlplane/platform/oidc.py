"""Settings for sign-in with OpenID Connect: the provider, and the roles of its groups.

Standard library only: the settings use it before Django is loaded.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from controlplane.platform.environment import EnvironmentUnusable, one_of, password_of

PROVIDER = "oidc"


@dataclass(frozen=True)
class Oidc:
    issuer: str
    client_id: str
    secret: str
    name: str
    scopes: tuple[str, ...]
    groups_claim: str
    groups: dict[str, frozenset[str]]
    """Groups by the role that they assign, highest role first."""
    default_role: str
    """Role of people in none of these groups; "refuse" if they may not sign in."""

    def role_of(self, groups: Iterable[str]) -> str | None:
        """Return the highest role that these groups assign, or None if their members may not sign in."""
        memberships = frozenset(groups)
        highest = next((role for role, members in self.groups.items() if members & memberships), self.default_role)
        return None if highest == "refuse" else highest

    def for_allauth(self) -> dict[str, object]:
        """Return the value of allauth's SOCIALACCOUNT_PROVIDERS setting."""
        app = {
            "provider_id": PROVIDER,
            "name": self.name,
            "client_id": self.client_id,
            "secret": self.secret,
            "settings": {
                "server_url": self.issuer.rstrip("/"),
                "oauth_pkce_enabled": True,
                "scope": list(self.scopes),
            },
        }
        return {PROVIDER: {"APPS": [app]}}


def from_environment() -> Oidc | None:
    """Return the settings, or None if no issuer is set. Raises EnvironmentUnusable if they are incomplete or
    invalid."""
    issuer = os.environ.get("CONTROLPLANE_OIDC_ISSUER", "")
    if not issuer:
        return None
    parts = urlsplit(issuer)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")):
        raise EnvironmentUnusable("CONTROLPLANE_OIDC_ISSUER must begin with https://, except on this machine.")
    client_id, secret = os.environ.get("CONTROLPLANE_OIDC_CLIENT_ID", ""), password_of("CONTROLPLANE_OIDC_SECRET_FILE")
    if not client_id or not secret:
        raise EnvironmentUnusable(
            "CONTROLPLANE_OIDC_ISSUER needs CONTROLPLANE_OIDC_CLIENT_ID and a secret in CONTROLPLANE_OIDC_SECRET_FILE."
        )
    return Oidc(
        issuer=issuer,
        client_id=client_id,
        secret=secret,
        name=os.environ.get("CONTROLPLANE_OIDC_NAME", "") or "single sign-on",
        scopes=("openid", "profile", "email", *sorted(_listed_values("CONTROLPLANE_OIDC_SCOPES"))),
        groups_claim=os.environ.get("CONTROLPLANE_OIDC_GROUPS_CLAIM", "") or "groups",
        groups={
            "admin": _listed_values("CONTROLPLANE_OIDC_ADMINS"),
            "operator": _listed_values("CONTROLPLANE_OIDC_OPERATORS"),
            "viewer": _listed_values("CONTROLPLANE_OIDC_VIEWERS"),
        },
        default_role=one_of("CONTROLPLANE_OIDC_OTHERS", ("viewer", "refuse")),
    )


def _listed_values(variable: str) -> frozenset[str]:
    names = os.environ.get(variable, "").split(",")
    return frozenset(name.strip() for name in names if name.strip())
