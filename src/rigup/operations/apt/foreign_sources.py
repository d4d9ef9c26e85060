"""Finds and disables apt sources that duplicate a repository managed by rigup.

apt refuses to work if two sources with the same address are signed by different keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.command_parts import FILE_MARK

MAIN = "/etc/apt/sources.list"  # contains the system's own archive
_FILES = f"{MAIN} /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources"
_OFF = re.compile(r"^Enabled:\s*(no|false|without|off|disable|0)\s*$", re.IGNORECASE | re.MULTILINE)
_ADDRESSES = re.compile(r"^URIs:((?:.*\n?)(?:[ \t]+\S.*\n?)*)", re.IGNORECASE | re.MULTILINE)
# Matches everything except a plain "no": apt accepts many words for yes.
_TRUSTED = re.compile(r"trusted\s*[=:]\s*(?!no\b|false\b|0\b)\S", re.IGNORECASE)

# $1 the file, $2 text of the lines to comment out, $3 the new place. A link to the file remains a link.
_COMMENT = r"""
file=$(readlink -f -- "$1"); cp -p "$file" "$file.rigup-new"
named="$2" now="$3" awk 'index($0, ENVIRON["named"]) && !/^[ \t]*#/ { print "# now in " ENVIRON["now"] ": " $0; next }
  { print }' "$file" > "$file.rigup-new"
mv -f "$file.rigup-new" "$file"
"""


def question(named: str) -> str:
    """sh that prints every file that contains `named` (part of an address), in the format of `files_of`."""
    return (
        f"for file in {_FILES}; do grep -qsF '{named}' \"$file\" && "
        f'{{ echo \'{FILE_MARK}\' "$file"; cat "$file"; echo; }}; done; true'
    )


def naming(files: Mapping[str, str], named: str) -> dict[str, list[str]]:
    """The active entries (lines, or deb822 stanzas) that name the repository, by the path of their file."""
    found = {path: [one for one in _entries(path, text) if named in one] for path, text in files.items()}
    return {path: entries for path, entries in found.items() if entries}


def refuse_unclear(host: str, files: Mapping[str, str], named: str, what: str) -> None:
    """Raises HostFailed if a source accepts these packages unsigned, or shares a .sources file with other sources.

    what: the owner of the packages, for the message.
    """
    for path, entries in naming(files, named).items():
        if any(_TRUSTED.search(entry) for entry in entries):
            raise HostFailed(
                f"{host}: {path} trusts {what} without checking a signature (trusted=yes)",
                f"remove {path}; rigup adds the repository with a pinned key",
            )
        if _deb822(path) and not _alone(path, files[path], named):
            raise HostFailed(
                f"{host}: {path} contains the source of {what} and other sources",
                "remove its stanza from that file or set Enabled: no; rigup adds it as a separate source",
            )


def put_aside(host: Host, files: Mapping[str, str], named: str, own: str) -> None:
    """Removes the repository from these files: renames a file without other sources, else comments out its lines.

    own: rigup's source, which stays.
    """
    for path in naming(files, named):
        if path == own:
            continue
        if path != MAIN and _alone(path, files[path], named):
            remote.check_output(host, "mv", path, f"{path}.disabled")  # apt ignores files with this suffix
        else:
            remote.script(host, _COMMENT, path, named, own, doing=f"writing {path}")


def _alone(path: str, text: str, named: str) -> bool:
    """Whether a file contains only this repository."""
    return all(named in address for entry in _entries(path, text) for address in _addresses(path, entry))


def _addresses(path: str, entry: str) -> list[str]:
    if not _deb822(path):
        return [entry]
    return [address for found in _ADDRESSES.findall(entry) for address in found.split()]


def _entries(path: str, text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    if not _deb822(path):
        return [line for line in lines if line.strip()]
    stanzas = re.split(r"\n\s*\n", "\n".join(lines))
    return [stanza for stanza in stanzas if stanza.strip() and not _OFF.search(stanza)]


def _deb822(path: str) -> bool:
    return path.endswith(".sources")
