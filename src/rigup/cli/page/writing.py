"""Writes a page atomically, and checks beforehand that it can be written."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from rigup.errors import InputError
from rigup.printable import printable

STANDARD_OUTPUT = "-"
HINT = "name a file in a writable folder, or - for standard output"


def check_page(args: argparse.Namespace) -> None:
    """Raises InputError for a --html that could not be written, before anything else is done."""
    if args.json and args.html == STANDARD_OUTPUT:
        raise InputError("--html - and --json: both would go to standard output", "name a file for the page")
    check_writable(args.html, "--html")


def write_html(path: str, text: str) -> None:
    """Writes the page of --html and prints its path to standard error."""
    write_page(path, text, "--html")
    if path != STANDARD_OUTPUT:
        print(f"{path}: written", file=sys.stderr)


def check_writable(path: str, flag: str) -> None:
    """Raises InputError naming flag and path if no file can be written there. Leaves no file behind."""
    if path == STANDARD_OUTPUT:
        return
    target = Path(path)
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            what = "Is a directory" if target.is_dir() else "not a regular file"
            raise InputError(f"{flag}: {path}: {what}", HINT)
        descriptor, name = _beside(target.resolve())
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        raise InputError(f"{flag}: {path}: {error.strerror}", HINT) from None


def write_page(path: str, text: str, flag: str, mode: int | None = None) -> None:
    """Replaces the file atomically: readers see the old page or the new one. "-" is standard output.

    mode: permissions of the file; None keeps those of an existing file, or uses the umask.
    """
    text = printable(text)
    if path == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    target, name = Path(path).resolve(), ""
    try:
        descriptor, name = _beside(target)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, _mode(target) if mode is None else mode)
        os.replace(name, target)
    except OSError as error:
        with suppress(OSError):
            os.unlink(name)
        raise InputError(f"{flag}: {path}: {error.strerror}", HINT) from None


def _beside(target: Path) -> tuple[int, str]:
    return tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".new", dir=target.parent)


def _mode(target: Path) -> int:
    with suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
