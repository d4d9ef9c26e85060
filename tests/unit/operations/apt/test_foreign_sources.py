"""Other files of apt's stop naming a repository that rigup has as a source of its own; what else they have stays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rigup.errors import HostFailed
from rigup.operations.apt import foreign_sources
from rigup.operations.apt.foreign_sources import naming, put_aside, question, refuse_unclear
from rigup.operations.primitives.command_parts import files_of
from tests.unit.local_host import LocalHost

NAMED = "/compute/cuda/repos/"
CUDA = f"deb [signed-by=/usr/share/keyrings/cuda.gpg] https://mirror.lan{NAMED}debian12/x86_64/ /"
ARCHIVE = "deb http://debian.example/debian bookworm main  # the system\n"
STANZA = f"Types: deb\nURIs: https://mirror.lan{NAMED}debian12/x86_64/\nSuites: ./\n"
DEBIAN = "Types: deb\nURIs: http://debian.example/debian\nSuites: bookworm\nComponents: main\n"
OWN = "/etc/apt/sources.list.d/nvidia-cuda.sources"


def stands(folder: Path, name: str, text: str) -> dict[str, str]:
    path = folder / name
    path.write_text(text)
    return {str(path): text.strip()}


def test_a_line_among_the_systems_own_is_commented_out_and_nothing_else_changes(tmp_path: Path) -> None:
    text = f"# mine \\n $HOME\n{ARCHIVE}{CUDA}\n  # {CUDA}\n\n{ARCHIVE}"
    files = stands(tmp_path, "sources.list", text)
    (tmp_path / "sources.list").chmod(0o640)
    put_aside(LocalHost(), files, NAMED, OWN)
    assert (tmp_path / "sources.list").read_text() == text.replace(f"\n{CUDA}", f"\n# now in {OWN}: {CUDA}", 1)
    assert (tmp_path / "sources.list").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["sources.list"]


def test_a_link_to_such_a_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(ARCHIVE + CUDA + "\n")
    (tmp_path / "sources.list").symlink_to("real")
    put_aside(LocalHost(), {str(tmp_path / "sources.list"): ARCHIVE + CUDA}, NAMED, OWN)
    assert (tmp_path / "sources.list").is_symlink()
    assert (tmp_path / "real").read_text() == f"{ARCHIVE}# now in {OWN}: {CUDA}\n"


def test_the_systems_own_file_is_never_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = stands(tmp_path, "sources.list", CUDA + "\n")
    monkeypatch.setattr(foreign_sources, "MAIN", str(tmp_path / "sources.list"))
    put_aside(LocalHost(), files, NAMED, OWN)
    assert (tmp_path / "sources.list").read_text() == f"# now in {OWN}: {CUDA}\n"


@pytest.mark.parametrize(("name", "text"), [("cuda.list", CUDA + "\n"), ("cuda.sources", STANZA)])
def test_a_file_of_nothing_else_is_renamed(tmp_path: Path, name: str, text: str) -> None:
    put_aside(LocalHost(), stands(tmp_path, name, text), NAMED, OWN)
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.disabled"]
    assert (tmp_path / f"{name}.disabled").read_text() == text


def test_rigups_own_source_and_files_that_name_something_else_stay(tmp_path: Path) -> None:
    files = stands(tmp_path, "own.sources", STANZA) | stands(tmp_path, "debian.list", ARCHIVE)
    put_aside(LocalHost(), files, NAMED, str(tmp_path / "own.sources"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["debian.list", "own.sources"]
    assert (tmp_path / "debian.list").read_text() == ARCHIVE


@pytest.mark.parametrize(
    "text",
    [f"{DEBIAN}\n{STANZA}", f"{STANZA} \n{DEBIAN}", STANZA.replace("URIs:", "URIs: http://debian.example/debian\n ")],
    ids=["two stanzas", "parted by a blank", "two addresses"],
)
def test_a_stanza_among_others_is_refused(text: str) -> None:
    path = "/etc/apt/sources.list.d/debian.sources"
    with pytest.raises(HostFailed) as caught:
        refuse_unclear("box", {path: text}, NAMED, "NVIDIA's packages")
    assert caught.value.message == f"box: {path} contains the source of NVIDIA's packages and other sources"
    assert "set Enabled: no" in (caught.value.hint or "")


@pytest.mark.parametrize("stanza", [f"{STANZA}Enabled: no\n", "".join(f"# {line}\n" for line in STANZA.splitlines())])
def test_a_stanza_that_does_not_count_is_not(stanza: str) -> None:
    files = {"debian.sources": f"{DEBIAN}\n{stanza}"}
    refuse_unclear("box", files, NAMED, "NVIDIA's packages")
    assert naming(files, NAMED) == {}


def test_only_a_source_of_these_packages_must_be_signed() -> None:
    files = {"sources.list": f"deb [trusted=yes] file:/srv/mine ./\n{CUDA}"}
    refuse_unclear("box", files, NAMED, "NVIDIA's packages")
    assert naming(files, NAMED) == {"sources.list": [CUDA]}


def test_files_are_read_by_what_they_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stands(tmp_path, "a b.list", f"{CUDA}\n")
    stands(tmp_path, "debian.list", ARCHIVE)
    monkeypatch.setattr(foreign_sources, "_FILES", f"{tmp_path}/missing {tmp_path}/*.list")
    done = subprocess.run(["sh", "-c", question(NAMED)], capture_output=True, text=True, check=True)
    assert files_of(["banner", *done.stdout.splitlines()]) == {f"{tmp_path}/a b.list": CUDA}
