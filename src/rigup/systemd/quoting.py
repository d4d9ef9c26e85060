"""The form of systemd's unit files, and all quoting in them. Source: systemd.service(5), systemd.syntax(7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# systemd itself expands these for a running service; everything else that looks like a variable is literal.
EXPANDED = ("${CREDENTIALS_DIRECTORY}", "${RUNTIME_DIRECTORY}")
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "%": "%%", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_SPLIT = re.compile("(" + "|".join(re.escape(name) for name in EXPANDED) + ")")


def unit_file(sections: Mapping[str, Iterable[str]]) -> str:
    """The text of a file with these sections, each of whole lines; ends with a newline."""
    return "\n".join(f"[{name}]\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections.items())


def command_line(words: tuple[str, ...]) -> str:
    """The value of ExecStart= that makes systemd pass on exactly these words. The first is an absolute path."""
    return " ".join(_command_word(word) for word in words)


def environment_line(name: str, value: str) -> str:
    """One variable as the value of Environment=, where `$` has no special meaning."""
    return _quoted(_escaped(f"{name}={value}"))


def credential(name: str, text: str) -> str:
    """A credential as the value of SetCredential=, where `%` and quotes have no special meaning."""
    plain = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return f"{name}:" + "".join(plain.get(char) or (char if char.isprintable() else _hex(char)) for char in text)


def plain_text(text: str) -> str:
    """Text for Description= and similar keys: one line, with literal `%`."""
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
