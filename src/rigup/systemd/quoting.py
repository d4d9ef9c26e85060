"""Quoting for systemd unit files, done here once and nowhere else. Source: systemd.service(5), systemd.syntax(7)."""

from __future__ import annotations

import re

# What systemd itself fills in for a running service; everything else that looks like a variable is taken literally.
EXPANDED = ("${CREDENTIALS_DIRECTORY}", "${RUNTIME_DIRECTORY}")
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "%": "%%", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_SPLIT = re.compile("(" + "|".join(re.escape(name) for name in EXPANDED) + ")")


def command_line(words: tuple[str, ...]) -> str:
    """The words as the value of ExecStart=, so that systemd passes on exactly these. The first is an absolute path."""
    return " ".join(_command_word(word) for word in words)


def environment_line(name: str, value: str) -> str:
    """One variable as the value of Environment=, where `$` means nothing."""
    return _quoted(_escaped(f"{name}={value}"))


def plain_text(text: str) -> str:
    """Text for Description= and the like: one line, with `%` taken literally."""
    return " ".join(text.split()).replace("%", "%%")


def _command_word(word: str) -> str:
    parts = _SPLIT.split(word)
    if len(parts) == 1 and _PLAIN.fullmatch(word):
        return word
    return _quoted("".join(part if part in EXPANDED else _escaped(part).replace("$", "$$") for part in parts))


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(char) or (char if char.isprintable() else _hex(char)) for char in text)


def _hex(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode())


def _quoted(text: str) -> str:
    return f'"{text}"'
