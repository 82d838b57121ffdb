"""The addresses of clients, and rules for those of outgoing requests: public ones are allowed, private ones if an admin
allows them.

The rules apply to the address of the connection, so neither DNS changes nor unusual notations can bypass them.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.http import HttpRequest

from workers import outbound
from workers.contract.run.spec import METADATA

Address = IPv4Address | IPv6Address
MAX_CLIENT_CHARACTERS = 64
"""Length of the columns that store a client's address, which may be any text that a trusted proxy passes on."""

PRIVATE = tuple(
    ip_network(network)
    for network in (
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "100.64.0.0/10", "::1/128", "fc00::/7",
    )
)  # fmt: skip
"""Loopback, private, carrier and overlay networks."""
SPECIAL = tuple(
    ip_network(network) for network in ("192.0.0.0/24", "192.88.99.0/24", "2002::/16", "2001::/23", "64:ff9b:1::/48")
)
"""Networks of tunnels and protocol assignments; the standard library classifies some of them as global."""
NAT64 = ip_network("64:ff9b::/96")


def of_client(request: HttpRequest) -> str:
    """Return the address of the client, cut to MAX_CLIENT_CHARACTERS, or "" if it is unknown."""
    return str(request.META.get("REMOTE_ADDR", ""))[:MAX_CLIENT_CHARACTERS]


def refusal(ip: str, *, private_too: bool) -> str | None:
    """Explain why this IP address may not be contacted; return None if it may."""
    address = unmapped(ip)
    if address in METADATA:
        return f"{ip} is a cloud's metadata address, which serves the machine's credentials"
    if _is_in(address, PRIVATE):
        return None if private_too else f"{ip} is a private address, and this target doesn't allow private addresses"
    if address.is_global and not address.is_multicast and not address.is_reserved and not _is_in(address, SPECIAL):
        return None
    return f"{ip} can't be a server's address"


@dataclass(frozen=True)
class AddressRule:
    """A rule for workers.outbound. Called with an IP address, it returns why that may not be contacted, or None."""

    private_too: bool
    plain_http: bool
    """True if the requests are unencrypted, so that public addresses are refused."""

    def __call__(self, ip: str) -> str | None:
        reason = refusal(ip, private_too=self.private_too)
        if reason is None and self.plain_http and not is_private(ip):
            return f"{ip} is a public address, which requires https: http is unencrypted"
        return reason


def rule_for(url: str, *, private_too: bool) -> AddressRule:
    """Return the rule for the addresses of this URL's server."""
    return AddressRule(private_too, plain_http=urlsplit(url).scheme == "http")


def check_url(address: str, *, private_too: bool) -> None:
    """Raise ValidationError if a URL is malformed or, without `private_too`, if it is private or lacks https."""
    if problem := outbound.problem(address):
        raise ValidationError(problem)
    if is_inside(address) and not private_too:
        raise ValidationError("This is a private address. If it is the right one, allow private addresses below.")
    if urlsplit(address).scheme == "http" and not private_too:
        raise ValidationError("Public servers require https.")


def is_inside(url: str) -> bool:
    """Return whether the host in the URL is localhost or a literal private address."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or is_private(str(ip_address(host)))
    except ValueError:
        return False


def is_private(ip: str) -> bool:
    return _is_in(unmapped(ip), PRIVATE)


def unmapped(ip: str) -> Address:
    """Parse an IP address without its zone. Return the embedded IPv4 address if an IPv6 address has one."""
    address = ip_address(ip.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        if int(address) >> 32 == 0 and int(address) > 1:  # the old "IPv4-compatible" form
            return IPv4Address(int(address))
    return address


def _is_in(address: Address, networks: tuple[object, ...]) -> bool:
    return any(address in network for network in networks)  # type: ignore[operator]
