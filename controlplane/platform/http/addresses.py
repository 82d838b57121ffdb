"""Rules for the IP addresses of outgoing requests: public ones are allowed, private ones if an admin allows them.

The rules apply to the address of the connection, so neither DNS changes nor unusual notations can bypass them.
"""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError

from workers import outbound
from workers.contract.run.spec import METADATA

Address = IPv4Address | IPv6Address

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
"""Networks of tunnels and protocol assignments, some of which the standard library classifies as global."""
NAT64 = ip_network("64:ff9b::/96")


def refusal(ip: str, *, private_too: bool) -> str | None:
    """Explain why this IP address may not be contacted; return None if it may."""
    address = plain(ip)
    if address in METADATA:
        return f"{ip} is a cloud's metadata address, which serves the machine's credentials"
    if _is_in(address, PRIVATE):
        return None if private_too else f"{ip} is a private address, and this target doesn't allow private addresses"
    if address.is_global and not address.is_multicast and not address.is_reserved and not _is_in(address, SPECIAL):
        return None
    return f"{ip} can't be a server's address"


def rule_for(url: str, *, private_too: bool) -> Callable[[str], str | None]:
    """Return a rule for workers.outbound: a function that says why an IP address of this URL may not be contacted, or
    None if it may."""
    plain_http = urlsplit(url).scheme == "http"

    def why(ip: str) -> str | None:
        refused = refusal(ip, private_too=private_too)
        if refused is None and plain_http and not is_private(ip):
            return f"{ip} is a public address, which requires https: http is unencrypted"
        return refused

    return why


def check_url(address: str, *, private_too: bool) -> None:
    """Raise ValidationError if a URL is malformed or must not be private. Its IP address is checked at each request."""
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
    return _is_in(plain(ip), PRIVATE)


def plain(ip: str) -> Address:
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
