"""`lan_address` as hosts of an inventory have it."""

from __future__ import annotations

import pytest

from rigup.errors import InputError
from rigup.fleet.lan_address import lan_address


@pytest.mark.parametrize("said", ["192.168.100.10", "fd00::7"])
def test_it_is_an_address(said: str) -> None:
    assert lan_address({"lan_address": said}) == said


def test_it_need_not_be_there() -> None:
    assert lan_address({}) is None


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("gpu1.lan", 'lan_address: "gpu1.lan" is not an IP address'),
        ("192.168.100.10/24", 'lan_address: "192.168.100.10/24" is not an IP address'),
        (3, 'lan_address: "3" is not an IP address'),
        ("127.0.0.1", "lan_address: no other host reaches 127.0.0.1"),
        ("0.0.0.0", "lan_address: no other host reaches 0.0.0.0"),
        ("::1", "lan_address: no other host reaches ::1"),
    ],
)
def test_what_is_no_address_is_refused(said: object, message: str) -> None:
    with pytest.raises(InputError) as refused:
        lan_address({"lan_address": said})
    assert refused.value.message == message
    assert refused.value.hint.startswith("the address at which the other hosts reach this one; ")
