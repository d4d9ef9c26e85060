"""The user and group ids of lab machines: each machine has a range of this machine's, in which its root is nobody."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rigup.errors import MissingTool
from rigup.lab.folder import LabRecord
from rigup.lab.network.addresses import MOST_MACHINES
from rigup.lab.process import environment

COUNT = 65536
FIRST, END = 0x80000, 0x70000000
"""Where containers of systemd's have their ranges ("Users, Groups, UIDs and GIDs on systemd Systems")."""

# The same on every architecture; the constants are those of linux/mount.h and linux/fcntl.h.
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, MOUNT_ATTR_IDMAP = 0x1, 0x4, 0x100000
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000


class MountAttributes(ctypes.Structure):
    """The kernel's struct mount_attr."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def first_id(number: int) -> int:
    """The first id of lab `number`: its machines have one range each from there on. Lab 144 shares with lab 1."""
    each = MOST_MACHINES * COUNT
    return FIRST + (number - 1) % ((END - FIRST) // each) * each


def root_of(record: LabRecord, index: int) -> int:
    """The id on this machine of root of machine `index`, where its range begins."""
    return record.first_id + (index - 1) * COUNT


def check(folder: Path) -> None:
    """Raises MissingTool if ids cannot be mapped in the file system of a folder."""
    try:
        os.close(_mapped(folder, FIRST))
    except OSError as error:
        raise MissingTool(
            f"{folder}: its file system cannot map user ids, which the lab requires: {error.strerror}",
            "set XDG_CACHE_HOME to a folder on ext4, xfs or btrfs",
        ) from None


def mount_mapped(source: Path, target: Path, first: int) -> None:
    """Mounts a folder so that its files belong to the ids from `first` on: root's to `first`; raises OSError."""
    tree = _mapped(source, first)
    try:
        _call(MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


def _mapped(source: Path, first: int) -> int:
    """A mount of a folder with mapped ids, in no place yet, as an open file."""
    tree = _call(OPEN_TREE, AT_FDCWD, os.fsencode(source), OPEN_TREE_CLONE | os.O_CLOEXEC)
    try:
        with _user_namespace(first) as namespace:
            mapped = MountAttributes(attr_set=MOUNT_ATTR_IDMAP, userns_fd=namespace)
            _call(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(mapped), ctypes.sizeof(mapped))
    except BaseException:
        os.close(tree)
        raise
    return tree


def hand_over(folder: Path, first: int) -> None:
    """Gives all below a folder, and itself, to a machine: what is root's here is then its root's."""
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        os.chown(path, first + status.st_uid, first + status.st_gid, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(status.st_mode)  # chown takes setuid and setgid away


@contextmanager
def _user_namespace(first: int) -> Iterator[int]:
    """A user namespace, as an open file, whose ids are a machine's."""
    words = ["unshare", "--user", "sh", "-c", "echo; read -r end"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment()) as inside:
        assert inside.stdout
        inside.stdout.readline()
        process = Path("/proc") / str(inside.pid)
        for file in ("uid_map", "gid_map"):
            (process / file).write_text(f"0 {first} {COUNT}\n")
        namespace = os.open(process / "ns/user", os.O_RDONLY | os.O_CLOEXEC)
        inside.communicate(b"\n")
        try:
            yield namespace
        finally:
            os.close(namespace)


def _call(number: int, *arguments: object) -> int:
    """One system call; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), *(_word(argument) for argument in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def _word(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument
