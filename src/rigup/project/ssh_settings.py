"""What an inventory may say of how SSH reaches a host: names of hosts, and the kinds of pyinfra's `ssh_*` settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from rigup.errors import InputError

LONGEST_NAME = 253
LONGEST_TEXT = 4096
_NAME = re.compile(r"([\w][\w.+\\-]*@)?[\w:\[][\w.:%\]-]*")
_NAME_HINT = 'write it as ssh takes it: "gpu1.lan" or "ada@gpu1.lan"'
_HOST_KEYS = ("yes", "accept-new", "no", "off", "ask")


def check_host_name(name: str, where: str) -> None:
    """Raises InputError, beginning with `where`, for what cannot name a host. It lands in paths, argv and terminals."""
    if len(name) > LONGEST_NAME:
        raise InputError(f"{where}: a name of {len(name):,} characters", f"write at most {LONGEST_NAME} characters")
    if not name.strip():
        raise InputError(f"{where}: the name of a host is empty", _NAME_HINT)
    if not _NAME.fullmatch(name):
        raise InputError(f"{where}: {name!a} is not the name of a host", _NAME_HINT)


def check_ssh_settings(data: Mapping[str, Any], origin: Callable[[str], str]) -> None:
    """Raises InputError for a setting of the wrong kind. origin: what messages about a key begin with."""
    for key, value in data.items():
        if value is None or key not in _KINDS:
            continue
        fits, kind, example = _KINDS[key]
        if not fits(value):
            shown = "the value" if "password" in key else _shown(value)
            raise InputError(f"{origin(key)}{key}: {shown} is not {kind}", f"write {key} = {example}")


def _shown(value: Any) -> str:
    text = ascii(value) if isinstance(value, (str, int, float)) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and bool(value.strip()) and len(value) <= LONGEST_TEXT


def _is_path(value: Any) -> bool:
    return _is_text(str(value) if isinstance(value, PurePath) else value)


def _is_word(value: Any) -> bool:
    return _is_text(value) and not value.startswith("-") and not any(map(str.isspace, value))


def _is_host(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME and bool(_NAME.fullmatch(value)) and "@" not in value


def _within(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


_BOOL = (lambda value: isinstance(value, bool), "True or False", "True")
_SECONDS = (
    lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 3600,
    "a number of seconds from 0 to 3600",
    "1",
)
_KINDS: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "ssh_port": (_within(1, 65_535), "a port, a whole number from 1 to 65535", "22"),
    "ssh_user": (_is_word, "the name of a user", '"ada"'),
    "ssh_hostname": (_is_host, "the name or address of a host", '"192.168.1.20"'),
    "ssh_key": (_is_path, "a path", '"~/.ssh/id_ed25519"'),
    "ssh_config_file": (_is_path, "a path", '"~/.ssh/config"'),
    "ssh_known_hosts_file": (_is_path, "a path", '"~/.ssh/known_hosts"'),
    "ssh_password": (lambda value: isinstance(value, str), "text", '"..."'),
    "ssh_key_password": (lambda value: isinstance(value, str), "text", '"..."'),
    "ssh_strict_host_key_checking": (
        lambda value: isinstance(value, str) and value in _HOST_KEYS,
        "one of " + ", ".join(_HOST_KEYS),
        '"yes"',
    ),
    "ssh_allow_agent": _BOOL,
    "ssh_look_for_keys": _BOOL,
    "ssh_forward_agent": _BOOL,
    "ssh_connect_retries": (_within(0, 100), "a whole number from 0 to 100", "3"),
    "ssh_connect_retry_min_delay": _SECONDS,
    "ssh_connect_retry_max_delay": _SECONDS,
    "ssh_paramiko_connect_kwargs": (lambda value: isinstance(value, dict), "a table", '{"banner_timeout": 60}'),
}
