"""Certificates of hosts: only those that an authority for the host made for it, now and for hosts, count."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import paramiko
import pytest

from rigup.connection.known_hosts import KnownHosts, certificate_problem, marked_lines

KINDS = {"ed25519": paramiko.Ed25519Key, "ecdsa": paramiko.ECDSAKey, "rsa": paramiko.RSAKey}


def keygen(folder: Path, *words: str) -> None:
    subprocess.run(["ssh-keygen", "-q", *words], cwd=folder, check=True, stdin=subprocess.DEVNULL)


def key_of(file: Path, kind: str = "ed25519") -> paramiko.PKey:
    """The key of a .pub file, with its certificate if it is one."""
    blob = paramiko.pkey.PublicBlob.from_string(file.read_text()).key_blob
    return KINDS[kind](paramiko.Message(blob))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the keys of two authorities and of a host of each kind."""
    folder = tmp_path_factory.mktemp("keys")
    for name, kind in (("authority", "ed25519"), ("other", "rsa"), *((kind, kind) for kind in KINDS)):
        keygen(folder, "-t", kind, "-N", "", "-f", name)
    return folder


def certified(
    folder: Path, *words: str, kind: str = "ed25519", authority: str = "authority", names: str = "box.lan,10.0.0.1"
) -> paramiko.PKey:
    """The key of a host with a certificate, which ssh-keygen makes with these words."""
    keygen(
        folder, "-s", authority, "-I", "a host", *(words or ("-h",)), *(("-n", names) if names else ()), f"{kind}.pub"
    )
    return key_of(folder / f"{kind}-cert.pub", kind)


def problem(folder: Path, key: paramiko.PKey, name: str = "box.lan", now: float | None = None) -> str:
    authority = key_of(folder / "authority.pub").asbytes()
    return certificate_problem(key, [name], [authority], time.time() if now is None else now)


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_of_each_kind_counts(folder: Path, kind: str) -> None:
    key = certified(folder, kind=kind)
    assert problem(folder, key) == problem(folder, key, "BOX.lan") == problem(folder, key, "10.0.0.1") == ""


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        (("-h",), {"names": "other.lan"}, "is for other.lan"),
        (("-h",), {"names": ""}, "is for no name"),
        ((), {"authority": "other"}, "is of an authority that is not known"),
        (("-h", "-V", "-2h:-1h"), {}, "is not valid now"),
        (("-h", "-V", "+1h:+2h"), {}, "is not valid now"),
        (("-O", "force-command=true"), {}, "is not for a host"),
    ],
)
def test_what_keeps_one_from_counting(folder: Path, words: tuple[str, ...], more: dict[str, str], said: str) -> None:
    assert problem(folder, certified(folder, *words, **more)) == said


def test_a_changed_byte_anywhere_is_noticed(folder: Path) -> None:
    whole = certified(folder).public_blob.key_blob
    signature = 64  # bytes, behind 19 that name its kind and length, which are not signed themselves
    for at in (*range(4, len(whole) - signature - 23, 5), *range(len(whole) - signature, len(whole), 9)):
        blob = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        try:
            key = paramiko.Ed25519Key(paramiko.Message(blob))
        except Exception:
            continue  # not a key, so no connection gets this far
        assert key.public_blob is None or problem(folder, key) != ""


@pytest.mark.parametrize(
    ("patterns", "name", "counts"),
    [
        ("*.lan", "box.lan", True),
        ("*.lan", "box.lan.evil", False),
        ("*.lan,!box.*", "box.lan", False),
        ("b?x.lan", "box.lan", True),
        ("box.lan", "[box.lan]:2222", True),
        ("[box.lan]:2222", "[box.lan]:2222", True),
        ("[abc]ox.lan", "box.lan", False),
        ("box.*", "boxxlan", False),
    ],
)
def test_for_which_names_an_authority_counts(folder: Path, patterns: str, name: str, counts: bool) -> None:
    (line,) = marked_lines(f"@cert-authority {patterns} {(folder / 'authority.pub').read_text()}")
    known = KnownHosts(paramiko.HostKeys(), (line,))
    assert bool(known.authorities(name)) is counts
    said = known.problem(name, certified(folder))
    assert said == ("" if counts else None)


def test_the_alias_is_the_name_that_counts(folder: Path) -> None:
    (line,) = marked_lines(f"@cert-authority *.lan {(folder / 'authority.pub').read_text()}")
    key = certified(folder)
    assert KnownHosts(paramiko.HostKeys(), (line,), "box.lan").problem("192.0.2.7", key) == ""
    assert KnownHosts(paramiko.HostKeys(), (line,)).problem("192.0.2.7", key) is None


@pytest.mark.parametrize(
    "hashed", [paramiko.HostKeys.hash_host("box.lan"), "|1|x|y", "|1|", "|"], ids=["true", "short", "empty", "bar"]
)
def test_a_name_may_be_hashed(folder: Path, hashed: str) -> None:
    (line,) = marked_lines(f"@revoked {hashed} {(folder / 'ecdsa.pub').read_text()}")
    assert line.names("BOX.lan") == (len(hashed) > 10) and not line.names("other.lan")


def test_what_is_revoked_counts_for_nothing(folder: Path) -> None:
    text = (folder / "authority.pub").read_text()
    known = KnownHosts(
        paramiko.HostKeys(), tuple(marked_lines(f"@cert-authority * {text}\n@revoked * {text}\n# @revoked * {text}"))
    )
    assert known.problem("box.lan", certified(folder))
    host = key_of(folder / "ecdsa.pub", "ecdsa")
    keys = paramiko.HostKeys()
    keys.add("box.lan", host.get_name(), host)
    (line,) = marked_lines(f"@revoked box.lan {(folder / 'ecdsa.pub').read_text()}")
    assert KnownHosts(keys, (line,)).get("box.lan") is None
    assert KnownHosts(keys, (line,)).is_revoked("box.lan", host)
    assert KnownHosts(keys, ()).get("box.lan")[host.get_name()] == host


@pytest.mark.parametrize(
    "text", ["", "@cert-authority", "@cert-authority * ssh-ed25519 nonsense", "@other * ssh-ed25519 A"]
)
def test_other_lines_say_nothing(text: str) -> None:
    assert list(marked_lines(text)) == []
