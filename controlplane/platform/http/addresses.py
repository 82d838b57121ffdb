"""Rules for the IP addresses of outgoing requests: public ones, private ones if an admin allows it, never others.

The rules apply to the address of the connection, so neither DNS changes nor notations matter.
"""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError

from workers import outbound
from workers.contract.run.spec import METADATA

Address = IPv4Address | IPv6Address

PRIVATE = tuple(
    ip_network(text)
    for text in (
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "100.64.0.0/10", "::1/128", "fc00::/7",
    )
)  # fmt: skip
"""Loopback, private networks, and networks of carriers and overlays."""
SPECIAL = tuple(
    ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "2002::/16", "2001::/23", "64:ff9b:1::/48")
)
"""Tunnels and protocol assignments, some of which the standard library calls global."""
NAT64 = ip_network("64:ff9b::/96")


def refusal(text: str, *, private_too: bool) -> str | None:
    """Explain why this IP address may not be contacted; None if it may."""
    address = plain(text)
    if address in METADATA:
        return f"{text} is where a cloud keeps a machine's credentials"
    if _in(address, PRIVATE):
        return None if private_too else f"{text} is a private address, and this target doesn't allow private addresses"
    if address.is_global and not address.is_multicast and not address.is_reserved and not _in(address, SPECIAL):
        return None
    return f"{text} is not a server address"


def rule_for(url: str, *, private_too: bool) -> Callable[[str], str | None]:
    """Return a rule for workers.outbound: a function that says why an IP address of this URL may not be contacted."""
    plain_http = urlsplit(url).scheme == "http"

    def why(ip: str) -> str | None:
        refused = refusal(ip, private_too=private_too)
        if refused is None and plain_http and not is_private(ip):
            return f"{ip} is a public address, which requires https: http is unencrypted"
        return refused

    return why


def check_url(address: str, *, private_too: bool) -> None:
    """Check the form of a URL. Its IP address is checked at each request. Raises ValidationError."""
    if problem := outbound.problem(address):
        raise ValidationError(problem)
    if is_inside(address) and not private_too:
        raise ValidationError("This is a private address. If it is the one you mean, allow private addresses below.")
    if urlsplit(address).scheme == "http" and not private_too:
        raise ValidationError("Public servers require https.")


def is_inside(url: str) -> bool:
    """Check whether the URL is written with a private address."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or is_private(str(ip_address(host)))
    except ValueError:
        return False


def is_private(text: str) -> bool:
    return _in(plain(text), PRIVATE)


def plain(text: str) -> Address:
    """Return the address without its scope; an IPv6 address with an embedded IPv4 address as that one."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        if int(address) >> 32 == 0 and int(address) > 1:  # the old "IPv4-compatible" form
            return IPv4Address(int(address))
    return address


def _in(address: Address, networks: tuple[object, ...]) -> bool:
    return any(address in network for network in networks)  # type: ignore[operator]
