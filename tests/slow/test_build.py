"""Wheel and sdist: the same bytes from any copy of the checkout, and a wheel that works from an empty folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from rigup import __version__
from rigup.cli.main import VERBS

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("the wheel")]

ROOT = Path(__file__).parents[2]
INPUTS = (
    *("src", "roles", "deploy", "files", "inventories", "group_data", "catalogue", "docs", "rigup.lock"),
    *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "requirements.txt", ".gitignore"),
)
EPOCH = "1700000000"


def copied(folder: Path, seconds: int) -> Path:
    """A copy of what a release is made of, written at another time and with other permissions."""
    for name in INPUTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(path.stat().st_mode & (~0o077 if seconds % 2 else ~0o022))
            os.utime(path, (seconds, seconds))
    return folder


def built(source: Path, to: Path, *targets: str) -> dict[str, bytes]:
    """What hatchling builds, by file name."""
    words = [word for target in targets for word in ("-t", target)]
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(to), *words],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in to.iterdir()}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Wheel and sdist of this checkout."""
    source = copied(tmp_path_factory.mktemp("one"), 1_600_000_000)
    return built(source, tmp_path_factory.mktemp("release"), "wheel", "sdist")


@pytest.fixture(scope="module")
def installed(release: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as an installer does it."""
    folder = tmp_path_factory.mktemp("installed")
    (name,) = (name for name in release if name.endswith(".whl"))
    (folder / name).write_bytes(release[name])
    with zipfile.ZipFile(folder / name) as wheel:
        wheel.extractall(folder)
    return folder


def rigup(installed: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the installed package; the checkout's own is out of sight."""
    start = f"import sys; sys.path.insert(0, {str(installed)!r}); from rigup.cli.main import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-P", "-c", start, *words], cwd=cwd, capture_output=True, text=True)


def test_twice_is_the_same_bytes(release: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    again = built(copied(tmp_path / "two", 1_650_000_001), tmp_path / "release", "wheel", "sdist")
    assert sorted(release) == [f"rigup-{__version__}-py3-none-any.whl", f"rigup-{__version__}.tar.gz"]
    assert [name for name in release if release[name] != again[name]] == []


def test_the_sdist_builds_the_same_wheel(release: dict[str, bytes], tmp_path: Path) -> None:
    archive, wheel = f"rigup-{__version__}.tar.gz", f"rigup-{__version__}-py3-none-any.whl"
    (tmp_path / archive).write_bytes(release[archive])
    with tarfile.open(tmp_path / archive) as sdist:
        sdist.extractall(tmp_path)
    found = built(tmp_path / f"rigup-{__version__}", tmp_path / "release", "wheel")
    assert found == {wheel: release[wheel]}


def test_nothing_of_a_workplace_is_in_it(release: dict[str, bytes], installed: Path) -> None:
    names = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    tops = {name.split("/")[0] for name in names if not name.endswith(".whl")}
    assert tops == {"rigup", f"rigup-{__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name or "/." in name]


def test_it_works_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    assert rigup(installed, tmp_path, "--version").stdout == f"rigup {__version__}\n"
    fits = rigup(installed, tmp_path, "fit", "4x RTX 3090", "--json")
    assert (fits.returncode, "MiniMax-M2.5" in fits.stdout) == (0, True), fits.stderr
    (tmp_path / "inventories").mkdir()
    (tmp_path / "group_data").mkdir()
    (tmp_path / "inventories/home.py").write_text('boxes = ["gpu1.lan"]\n')
    (tmp_path / "group_data/boxes.py").write_text(
        'rig = {"gpus": []}\nservices = {"chat": {"model": "SmolLM2-135M-Instruct"}}\n'
    )
    planned = rigup(installed, tmp_path, "plan")
    assert "none refused" in planned.stdout, planned.stderr
    assert rigup(installed, tmp_path, "lock").returncode == 0
    assert rigup(installed, tmp_path, "lock", "--check").returncode == 0


WORDS = dict.fromkeys(("chat", "log", "report", "tune", "uninstall", "verify"), ("gpu1.lan",)) | {
    "compare": ("a", "b"),
    "key": ("show",),
    "exec": ("true",),
}


@pytest.mark.parametrize("verb", sorted({*VERBS} - {"up", "init", "model", "schema", "completion", "lab"}))
def test_a_verb_in_an_empty_folder_says_how_to_begin(installed: Path, tmp_path: Path, verb: str) -> None:
    done = rigup(installed, tmp_path, verb, *WORDS.get(verb, ()))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "rigup init USER@HOST" in done.stderr


def test_a_release_is_a_tag_with_its_version_and_its_date(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    copied(tree, 1_600_000_000)
    for name in ("bin", ".ci"):
        shutil.copytree(ROOT / name, tree / name)
    programs = tree / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    inputs = [(tree / name).read_bytes() for name in ("pyproject.toml", "requirements.txt")]
    (tree / ".venv/wanted").write_text(f"{hashlib.sha256(b''.join(inputs)).hexdigest()}  -\n")

    def git(*words: str) -> None:
        identity = ("-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *words], cwd=tree, check=True, capture_output=True)

    def release(tag: str) -> tuple[int, str]:
        done = subprocess.run([".ci/release", tag], cwd=tree, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    changelog = tree / "CHANGELOG.md"
    heading = next(line for line in changelog.read_text().splitlines() if line.startswith(f"## {__version__}"))
    changelog.write_text(changelog.read_text().replace(heading, f"## {__version__} (unreleased)"))
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    tag = f"v{__version__}"
    assert "tag v9.9.9 does not exist" in release("v9.9.9")[1]
    git("tag", "v9.9.9")
    assert "the version is not that of v9.9.9" in release("v9.9.9")[1]
    git("tag", tag)
    assert "no heading" in release(tag)[1]
    changelog.write_text(changelog.read_text().replace("(unreleased)", "(2027-01-15)"))
    git("commit", "-qam", "second")
    assert f"{tag} is not the checked-out commit" in release(tag)[1]
    git("tag", "-f", tag)
    code, said = release(tag)
    assert (code, len(re.findall(rf"^[0-9a-f]{{64}}  rigup-{re.escape(__version__)}", said, re.MULTILINE))) == (0, 2), (
        said
    )
