"""Which IP addresses alerts and judges may use, however they are written."""

from __future__ import annotations

import pytest

from controlplane.platform.http import addresses

PRIVATE = ("10.1.2.3", "172.16.0.1", "192.168.1.1", "127.0.0.1", "::1", "fd12::1", "100.64.0.1")
NEVER = (
    "0.0.0.0", "::", "169.254.169.254", "169.254.1.1", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1",
    "255.255.255.255", "240.0.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "2001:db8::1", "fd00:ec2::254",
    "100.100.100.200", "168.63.129.16", "2002:7f00:1::", "2001:0:7f00:1::", "64:ff9b::a9fe:a9fe",
)  # fmt: skip


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_a_public_address_may_be_sent_to_by_https(address: str) -> None:
    assert addresses.refusal(address, private_too=False) is None
    assert addresses.rule_for("https://chat.example/", private_too=False)(address) is None
    assert "unencrypted" in str(addresses.rule_for("HTTP://chat.example/", private_too=True)(address))


def test_a_private_address_takes_an_admins_word_however_it_is_written(subtests: pytest.Subtests) -> None:
    for address in [*PRIVATE, "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1"]:
        with subtests.test(address=address):
            assert addresses.refusal(address, private_too=False)
            assert addresses.refusal(address, private_too=True) is None
            assert addresses.rule_for("http://chat.example/", private_too=True)(address) is None


def test_some_addresses_are_never_sent_to(subtests: pytest.Subtests) -> None:
    for address in [*NEVER, "::ffff:0.0.0.0", "::ffff:169.254.169.254"]:
        with subtests.test(address=address):
            assert addresses.refusal(address, private_too=False)
            assert addresses.refusal(address, private_too=True)
