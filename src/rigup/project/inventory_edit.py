"""Puts a host into a fleet's files: a group of its own, or one more host of a group whose rig is the same.

What a person wrote is never overwritten. An inventory gets one host more, or a group at its end; where even that cannot
be done safely, the text to paste is the hint of the refusal.
"""

from __future__ import annotations

import ast
import json
import keyword
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigup.catalogue.catalogue import Catalogue
from rigup.errors import InputError, Refused
from rigup.plain_values import quoted
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.preflight.rig import HOST_MEMORY_TOLERANCE
from rigup.project.group_data import GROUP_DATA
from rigup.project.inventory import GROUP_HINT, INVENTORIES, LONGEST_GROUP, HostEntry, load_project
from rigup.regular_files import read_text, replace_file
from rigup.rig import Rig

IGNORED = """\
# Keys and tokens stay on this machine; reports are for the people you send them to.
secrets/
rigup-report-*
__pycache__/
"""


@dataclass(frozen=True)
class FileEdit:
    """One file as it will be; `action` is "new", or what is added to it."""

    path: Path
    text: str
    action: str

    def write(self) -> None:
        """Writes the whole file or nothing. Raises InputError where the folder cannot be written to."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, self.text.encode())
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror}", "name another folder with --fleet") from None


@contextmanager
def written(changes: Iterable[FileEdit]) -> Iterator[None]:
    """While entered all of them are on disk. They stay there unless something is raised: then all is as it was."""
    with ExitStack() as putting_back:
        for change in changes:
            content = change.path.read_bytes() if change.path.exists() else None
            made = [folder for folder in change.path.parents if not folder.exists()]  # the innermost first
            putting_back.callback(_put_back, change.path, content, made)
            change.write()
        yield
        putting_back.pop_all()


def _put_back(path: Path, content: bytes | None, folders: Iterable[Path]) -> None:
    with suppress(OSError):
        if content is None:
            path.unlink(missing_ok=True)
        elif path.read_bytes() != content:
            replace_file(path, content)
        for folder in folders:
            folder.rmdir()


@dataclass(frozen=True)
class ExistingHost:
    """A host that is in the fleet already, with the inventory that has it."""

    inventory: Path
    entry: HostEntry


def entry_of(name: str, data: dict[str, Any]) -> str:
    """A host as an inventory has it: its name, or name and data."""
    text = _quoted(name)
    pairs = ", ".join(f"{_quoted(key)}: {_quoted(value)}" for key, value in data.items())
    return f"({text}, {{{pairs}}})" if data else text


def _quoted(value: Any) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def members(root: Path) -> list[ExistingHost]:
    """Every host of every inventory of a fleet folder."""
    return [
        ExistingHost(path, host)
        for path in sorted((root / INVENTORIES).glob("*.py"))
        for host in load_project(str(path)).hosts
    ]


def check_new(name: str, there: list[ExistingHost]) -> None:
    """Raises InputError where a host is in the fleet already, under this name or with another user."""
    for member in there:
        known = member.entry.name
        if known.rpartition("@")[2] == name.rpartition("@")[2]:
            raise InputError(
                f"{member.inventory}: {known} is already in group {member.entry.group}", f"rigup plan --limit {known}"
            )


def equal_rigs(first: Rig, second: Rig) -> bool:
    """Whether two rigs are one: the same GPUs in the same order, release, and host memory but for what kernels keep."""
    if [gpu.key for gpu in first.gpus] != [gpu.key for gpu in second.gpus]:
        return False
    if first.os and second.os and first.os != second.os:
        return False
    one, other = first.host_memory_gib, second.host_memory_gib
    return one is None or other is None or abs(one - other) <= HOST_MEMORY_TOLERANCE * one


def group_for(rig: Rig, wanted: str | None, there: list[ExistingHost], catalogue: Catalogue) -> ExistingHost | None:
    """A host of the group that the new one belongs to, if there is such a group.

    One whose services span hosts is never joined unasked: one host more would be left over, and none of them planned.
    Raises Refused where the group that the user wants is another rig.
    """
    for member in there:
        declared = read_rig(member.entry.data["rig"], member.entry.data_path, catalogue)
        if wanted is None and declared.hosts_per_service == 1 and equal_rigs(declared, rig):
            return member
        if wanted == member.entry.group:
            if equal_rigs(declared, rig):
                return member
            raise Refused(
                f"{member.entry.data_path}: group {wanted} describes another rig: declared: {declared.text};"
                f" found: {rig.text}",
                "choose another name with --group",
            )
    return None


def join_group(member: ExistingHost, host: str) -> FileEdit:
    """One host more in the group of `member`; `host` is its entry. Raises Refused where the list is not a plain one."""
    path, group = member.inventory, member.entry.group
    text = read_text(path)
    elements = _elements(text, group)
    if elements:
        new = _with_one_more(text, elements[-1], host)
        now = _elements(new, group)
        if now and ast.dump(now[-1]) == ast.dump(ast.parse(host, mode="eval").body) and len(now) == len(elements) + 1:
            return FileEdit(path, new, f"{group}: one host more")
    raise Refused(f"{path}: {group} is not a plain list, so rigup cannot add a host to it", f"add it yourself: {host}")


def _with_one_more(text: str, last: ast.expr, host: str) -> str:
    """The text with `host` after the last element: on a line of its own where that one has one."""
    assert last.end_lineno is not None and last.end_col_offset is not None
    lines = text.splitlines(keepends=True)
    line = lines[last.end_lineno - 1].encode()
    before, rest = line[: last.end_col_offset], line[last.end_col_offset :]
    begins_line = not lines[last.lineno - 1].encode()[: last.col_offset].strip()
    comma = rest.lstrip().startswith(b",")
    if begins_line and rest.strip().lstrip(b",").strip()[:1] in (b"", b"#"):
        own = " " * last.col_offset + host + ",\n"
        lines[last.end_lineno - 1] = (before + (b"" if comma else b",") + rest).decode() + own
    else:
        lines[last.end_lineno - 1] = (before + f", {host}".encode() + rest).decode()
    return "".join(lines)


def _elements(text: str, group: str) -> list[ast.expr]:
    """The elements of the list that a group is, where it is written out, once."""
    values = [
        node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [group]
    ]
    value = values[0] if len(values) == 1 else None
    if isinstance(value, ast.Tuple) and value.elts:
        value = value.elts[0]
    return value.elts if isinstance(value, ast.List) else []


def new_folder(root: Path) -> list[FileEdit]:
    """What a fleet's folder needs before its first host: git told what is never to be committed."""
    path = root / ".gitignore"
    return [] if (root / INVENTORIES).exists() or path.exists() else [FileEdit(path, IGNORED, "new")]


def check_group_name(group: str) -> None:
    """Raises InputError for a name that no group of an inventory can have."""
    if not group.isidentifier() or group.startswith("_") or keyword.iskeyword(group) or len(group) > LONGEST_GROUP:
        raise InputError(f"--group: {quoted(group)} is not a valid group name", GROUP_HINT)


def new_group(root: Path, group: str, host: str, data: str) -> list[FileEdit]:
    """A group of its own: at the end of the only inventory, else in a new one, with its group_data.

    Raises InputError for a name that cannot be one, Refused where a file is there already.
    """
    check_group_name(group)
    line = f"{group} = [{host}]\n"
    described = root / GROUP_DATA / f"{group}.py"
    inventories = sorted((root / INVENTORIES).glob("*.py"))
    only = inventories[0] if len(inventories) == 1 else None
    new = {described: data} if only else {described: data, root / INVENTORIES / f"{group}.py": line}
    for path, text in new.items():
        if path.exists():
            raise Refused(
                f"{path} already exists",
                f"choose another name with --group, or write to it:\n{_indented(text)}\nand in an inventory: {line}",
            )
    edits = [FileEdit(path, text, "new") for path, text in new.items()]
    if only is None:
        return edits
    text = read_text(only)
    if any(ast.unparse(node).startswith(f"{group} =") for node in ast.parse(text).body):
        raise Refused(f"{only}: {group} already exists", f"choose another name with --group, or add {host}")
    return [*edits, FileEdit(only, f"{text.rstrip()}\n{line}", f"group {group}")]


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
