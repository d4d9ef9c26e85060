"""No address with a secret in it, and nothing that is not an address, gets past the settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.errors import InputError
from rigup.project.settings import read_settings
from rigup.sources.web_address import web_address

KEYS = ["hub", "package_index", "python_mirror", "nvidia_repository", "container_toolkit_repository"]
SECRETS = [
    "http://user:pw@hub.lan",
    "https://hf_token@hub.lan/x",
    "https://:pw@hub.lan",
    "https://user:pw@[::1",
    "ftp://user:pw@hub.lan",
    "https://user:p w@hub.lan",
    "https://user:pw\n@hub.lan",
]


@pytest.mark.parametrize("address", SECRETS)
@pytest.mark.parametrize("key", KEYS)
def test_a_password_is_refused_and_not_repeated(key: str, address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_settings({key: address}, (), tmp_path, {key: "group_data/all.py"})
    assert error.value.message.startswith(f"group_data/all.py: {key}: ")
    assert error.value.hint
    assert not any(secret in error.value.message + error.value.hint for secret in ("pw", "p w", "hf_token"))


@pytest.mark.parametrize(
    "address",
    ["http://hub.lan\n", "http://hub.lan/\x1b[2J", "http://", "http://h:99999999", "x", "http://h/?a", "1" * 9999],
)
@pytest.mark.parametrize("key", KEYS)
def test_what_is_not_an_address(key: str, address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_settings({key: address}, (), tmp_path)
    assert error.value.message.startswith(f"{key}: ")
    assert error.value.message.isprintable()


def test_a_hub_with_a_password_is_told_where_the_token_belongs(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_settings({"hub": SECRETS[0]}, (), tmp_path)
    assert error.value.message == "hub: the URL contains a user name or password"
    assert error.value.hint == 'put the token in a file and set hub_token_file = "secrets/hub.token" in group_data'


@pytest.mark.parametrize("address", [*SECRETS, "https://hub.lan\n", "https://hub.lan/path"])
def test_mirrors_of_images_have_none_either(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_settings({"image_mirrors": {"docker.io": address}}, (), tmp_path)
    assert error.value.message.startswith("image_mirrors.docker.io: ")
    assert "pw" not in error.value.message and error.value.message.isprintable()


@given(st.text() | st.from_regex(r"https?://[!-~]{0,40}"))
def test_any_text_is_an_address_or_one_error(text: str) -> None:
    try:
        found = web_address("hub", text, hint="hint", login_hint="secret hint")
    except InputError as error:
        assert error.message.startswith("hub: ") and error.message.isprintable()
    else:
        assert found == text and found.startswith(("https://", "http://")) and found.isprintable()
