"""The endpoint that a reward asks when it is tried in the web: an admin's address and key, and where that may lead."""

from __future__ import annotations

from controlplane.accounts import vault
from controlplane.http import addresses
from workers.rewards.tools import Endpoint, Unavailable


def endpoint(name: str) -> Endpoint:
    """By its name on the secrets page. Raises Unavailable.

    Its `refusal` holds for what its name leads to at that moment: the network around the web is not the trainer's, and
    whoever tries a reward reads what the server answers.
    """
    try:
        secret, key = vault.endpoint(name)
    except vault.NotGiven as error:
        raise Unavailable(str(error)) from None
    private_too, plain = secret.private_too, not secret.address.startswith("https:")

    def refusal(ip: str) -> str | None:
        if (why := addresses.refusal(ip, private_too=private_too)) is not None:
            return f"Nothing is sent there: {why}."
        if plain and not addresses.is_private(ip):
            return f"Nothing is sent there: {ip} is a public address, and the key would go there unencrypted."
        return None

    return Endpoint(secret.address, key, refusal=refusal)
