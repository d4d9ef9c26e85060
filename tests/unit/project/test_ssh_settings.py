"""Names of hosts and `ssh_*` settings: the exact message and hint for what cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.errors import InputError
from rigup.project.ssh_settings import check_host_name, check_ssh_settings

AS_SSH_TAKES_IT = 'write it as ssh takes it: "gpu1.lan" or "ada@gpu1.lan"'
NAMES = [
    ("", "the name of a host is empty", AS_SSH_TAKES_IT),
    (" ", "the name of a host is empty", AS_SSH_TAKES_IT),
    ("a\nb", "'a\\nb' is not the name of a host", AS_SSH_TAKES_IT),
    ("-oProxyCommand=id", "'-oProxyCommand=id' is not the name of a host", AS_SSH_TAKES_IT),
    ("../etc", "'../etc' is not the name of a host", AS_SSH_TAKES_IT),
    ("a" * 254, "a name of 254 characters", "write at most 253 characters"),
]


@pytest.mark.parametrize(("name", "message", "hint"), NAMES)
def test_what_cannot_name_a_host(name: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        check_host_name(name, "fleet.py: box[0]")
    assert (caught.value.message, caught.value.hint) == (f"fleet.py: box[0]: {message}", hint)


A_USER = "the name of a user"
SETTINGS: list[tuple[str, Any, str, str]] = [
    ("ssh_port", "abc", "'abc' is not a port, a whole number from 1 to 65535", "write ssh_port = 22"),
    ("ssh_user", 5, f"5 is not {A_USER}", 'write ssh_user = "ada"'),
    ("ssh_key", 5, "5 is not a path", 'write ssh_key = "~/.ssh/id_ed25519"'),
    ("ssh_hostname", 5, "5 is not the name or address of a host", 'write ssh_hostname = "192.168.1.20"'),
    ("ssh_config_file", 5, "5 is not a path", 'write ssh_config_file = "~/.ssh/config"'),
    ("ssh_password", 5, "the value is not text", 'write ssh_password = "..."'),
]


@pytest.mark.parametrize(("key", "value", "message", "hint"), SETTINGS)
def test_a_setting_of_another_kind(key: str, value: Any, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        check_ssh_settings({key: value}, lambda key: "fleet.py: box: ")
    assert (caught.value.message, caught.value.hint) == (f"fleet.py: box: {key}: {message}", hint)
