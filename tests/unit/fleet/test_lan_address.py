"""`lan_address` as hosts of an inventory have it."""

from __future__ import annotations

import pytest

from rigup.errors import InputError
from rigup.fleet.lan_address import lan_address


def test_it_is_an_address_or_not_there() -> None:
    assert lan_address("gpu1", {"lan_address": "192.168.100.10"}) == "192.168.100.10"
    assert lan_address("gpu1", {}) is None


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("gpu1.lan", 'inventories/home.py: gpu1: lan_address: "gpu1.lan" is not an IPv4 address'),
        ("192.168.100.10/24", 'inventories/home.py: gpu1: lan_address: "192.168.100.10/24" is not an IPv4 address'),
        ("fd00::1", 'inventories/home.py: gpu1: lan_address: "fd00::1" is not an IPv4 address'),
        (3, 'inventories/home.py: gpu1: lan_address: "3" is not an IPv4 address'),
        ("127.0.0.1", "inventories/home.py: gpu1: lan_address: no other host reaches 127.0.0.1"),
        ("0.0.0.0", "inventories/home.py: gpu1: lan_address: no other host reaches 0.0.0.0"),
    ],
)
def test_what_is_no_address_is_refused_with_where_it_stands(said: object, message: str) -> None:
    with pytest.raises(InputError) as refused:
        lan_address("gpu1", {"lan_address": said}, {"lan_address": "inventories/home.py"})
    assert refused.value.message == message
    assert '("gpu1.lan", {"lan_address": "192.168.100.10"})' in refused.value.hint
