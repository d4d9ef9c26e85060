"""Reads the files that a user writes: regular files of UTF-8 text, of bounded size, and the TOML and JSON in them.

Writes TOML, too.

A pipe, a device or a socket in the place of a file is refused before a read can block; a byte-order mark is left out.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pwd
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rigup.errors import InputError

LARGEST = 64 * 2**20
"""Bytes of one file. The largest that rigup writes itself, a lock of many checkpoints, has a few million."""
MOST_LEVELS = 24
"""Tables and lists inside each other, in TOML and in what group_data says."""
MOST_DOTS = 1000
"""In one line."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
MAY_READ = "check that it is a regular file and that you may read it and open the folders above it"


def home_folder() -> Path:
    """The user's home. Raises InputError where neither $HOME nor the list of users knows one."""
    try:
        return Path.home() if os.environ.get("HOME") else Path(pwd.getpwuid(os.getuid()).pw_dir)
    except (KeyError, RuntimeError):
        raise InputError(
            "HOME: not set, and this user has no home folder", "set HOME to a folder that you own"
        ) from None


def state_folder() -> Path:
    """The folder with what rigup remembers of earlier runs of this user. Raises InputError as `home_folder` does."""
    return Path(os.environ.get("XDG_STATE_HOME") or home_folder() / ".local/state") / "rigup"


def user_path(text: str, key: str) -> Path:
    """A path as a user writes it, "~/keys/hub". Raises InputError, naming the key, for the home of an unknown user."""
    if text == "~" or text.startswith("~/"):
        return home_folder() / text[2:]
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InputError(f"{key}: {text.split('/')[0]}: this user does not exist", "write the whole path") from None


def read_bytes(path: Path, name: str = "") -> bytes:
    """The content of a regular file. name: what messages call it, where that is not its path.

    Raises InputError, beginning with the path, for what is not one, cannot be read or is larger than LARGEST.
    """
    name = name or str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InputError(f"{name}: not a regular file", "replace it with a text file")
            content = file.read(LARGEST + 1)
    except OSError as error:
        # ENXIO is a socket, ENODEV and the like a device without a driver
        kind = error.errno in (errno.ENXIO, errno.ENODEV, errno.EISDIR)
        raise InputError(f"{name}: {'not a regular file' if kind else error.strerror}", MAY_READ) from None
    except ValueError:  # a null byte in the path
        raise InputError(f"{name!r}: not a path", "write the path of a file") from None
    if len(content) > LARGEST:
        raise InputError(f"{name}: larger than {LARGEST // 2**20} MiB", "replace it with a text file")
    return content


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Writes a whole file in one step. Raises OSError.

    mode: its permissions; None for those of the one that it replaces, or what the umask leaves.
    """
    new = path.with_name(f".{path.name[:100]}.{os.getpid()}")
    try:
        new.unlink(missing_ok=True)
        with open(new, "xb", opener=lambda name, flags: os.open(name, flags, 0o666 if mode is None else mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is None and path.exists():
            new.chmod(stat.S_IMODE(path.stat().st_mode))
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_in(folder: Path, suffix: str) -> list[Path]:
    """The files of a folder whose names end in `suffix`, by name; none where there is no folder.

    Raises InputError where it cannot be looked into: it may hold what counts.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}", MAY_READ) from None
    return [folder / name for name in sorted(names) if name.endswith(suffix)]


def is_absent(path: Path) -> bool:
    """Whether there is nothing at a path, which is not so where nobody can tell."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def text_of(name: str, content: bytes) -> str:
    """The text that the content of a file is, with "\\n" at the end of each line. Raises InputError naming the line."""
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}:{line}: not UTF-8: byte 0x{content[error.start]:02x}", "save it as UTF-8") from None


def read_text(path: Path, name: str = "") -> str:
    """The text of a regular file. Raises as `read_bytes` and `text_of` do."""
    return text_of(name or str(path), read_bytes(path, name))


def toml_of(path: Path, text: str, hint: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises InputError with the path for what is not TOML, or too deep."""
    import tomllib  # an inventory is read, and hosts are greeted, before any TOML

    too_deep = InputError(f"{path}: nested deeper than {MOST_LEVELS} levels", hint)
    if any(line.count(".") > MOST_DOTS for line in text.splitlines()):  # each part of a key costs all before it
        raise too_deep
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise too_deep from None
    except ValueError as error:  # also a number of more digits than Python reads
        raise InputError(f"{path}: {str(error)[:200]}", hint) from None
    if not is_shallow(data):
        raise too_deep
    return data


def toml_tables(
    name: str, values: Mapping[str, Any] | Sequence[Mapping[str, Any]], inner: Collection[str]
) -> Iterator[str]:
    """A table as TOML, or each of several of one name: a text without a blank line for it, and for each table in it.

    inner: the keys that are tables of their own wherever they hold tables, in this order. What is None is left out.
    """
    heading, tables = (f"[{name}]", [values]) if isinstance(values, Mapping) else (f"[[{name}]]", values)
    for table in tables:
        nested = {key: table[key] for key in inner if key in table and _holds_tables(table[key])}
        plain = {key: value for key, value in table.items() if key not in nested and value is not None}
        yield "\n".join((heading, *(f"{_toml_key(key)} = {toml_value(value)}" for key, value in plain.items())))
        for key, value in nested.items():
            yield from toml_tables(f"{name}.{key}", value, inner)


def _holds_tables(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and all(isinstance(each, Mapping) for each in value))


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else toml_value(key)


def toml_value(value: Any) -> str:
    """A plain value on one line. A TOML string is a JSON string, except that TOML needs DEL escaped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{_toml_key(key)} = {toml_value(each)}" for key, each in value.items() if each is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def is_shallow(value: Any) -> bool:
    """Whether a plain value has at most MOST_LEVELS tables and lists inside each other; one that has itself has not."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [
            part
            for each in level
            if isinstance(each, (dict, list, tuple))
            for part in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False


def refuse_irregular(path: Path, name: str) -> None:
    """Raises InputError for a pipe, a socket or a device: reading it may never end. What does not exist is fine.

    name: what the message calls it. /dev/null is as good as an empty file.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # the program that opens it says why
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode) and not path.samefile(os.devnull):
        raise InputError(f"{name}: not a regular file", "replace it with a text file")


def json_of(text: str) -> Any:
    """The value of a JSON text. Raises ValueError for what is not JSON, for NaN and Infinity, and for one too deep."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("too deep") from None
    if not is_shallow(value):
        raise ValueError("too deep")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
