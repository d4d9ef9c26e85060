"""Images are kept by the content of their recipe. The build itself is replaced here: it makes an empty folder."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from functools import partial
from pathlib import Path

import pytest

from rigup.errors import InputError, Refused
from rigup.lab import base
from rigup.lab.folder import LabFolder, LabRecord, make_folder


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the recipe that may be changed, and a cache folder of its own."""
    copy = tmp_path / "recipe"
    shutil.copytree(base.RECIPE, copy)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(base, "image_name", partial(base.image_name, recipe=copy))
    monkeypatch.setattr(base, "_build", lambda suite, name, packages: base.image(name).mkdir())
    return copy


def silent(line: str) -> None:
    pass


@pytest.mark.parametrize("file", ["packages.txt", "customise", "kernel-settings.service"])
def test_a_changed_recipe_is_another_image(tmp_path: Path, file: str) -> None:
    copy = tmp_path / "recipe"
    shutil.copytree(base.RECIPE, copy)
    assert base.image_name("bookworm", recipe=copy) == base.image_name("bookworm")
    with (copy / file).open("a") as changed:
        changed.write("# one more line\n")
    assert base.image_name("bookworm", recipe=copy) != base.image_name("bookworm")
    assert base.image_name("trixie") != base.image_name("bookworm")


def test_an_image_is_built_once_and_an_older_one_of_the_suite_goes(recipe: Path) -> None:
    said: list[str] = []
    first = base.ensure("bookworm", said.append)
    other_suite = base.ensure("trixie", silent)
    assert len(said) == 2
    assert base.ensure("bookworm", said.append) == first
    assert len(said) == 2

    (recipe / "packages.txt").write_text("systemd\n")
    second = base.ensure("bookworm", silent)
    assert second != first
    assert not base.image(first).exists()
    assert base.image(second).exists()
    assert base.image(other_suite).exists()


def test_an_image_that_a_lab_uses_stays(recipe: Path) -> None:
    first = base.ensure("bookworm", silent)
    make_folder(LabFolder("b").path)
    record = LabRecord(name="b", number=1, network=1, first_id=524288, suite="bookworm", base=first, disk="4g", hosts=1)
    LabFolder("b").keep(record)
    with pytest.raises(Refused, match=f"^{first}: lab b uses this image$"):
        base.ensure("bookworm", silent, fresh=True)
    (recipe / "packages.txt").write_text("systemd\n")
    base.ensure("bookworm", silent)
    assert base.image(first).exists()


def test_an_image_that_no_lab_uses_is_built_again(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(suite: str, name: str, packages: Collection[str]) -> None:
        built.append(name)
        base.image(name).mkdir(exist_ok=True)

    monkeypatch.setattr(base, "_build", build)
    name = base.ensure("bookworm", silent)
    assert base.ensure("bookworm", silent) == base.ensure("bookworm", silent, fresh=True) == name
    assert built == [name, name]


def test_what_looks_like_ubuntu_is_built_on_debian(recipe: Path) -> None:
    said: list[str] = []
    base.ensure("noble", said.append)
    base.ensure("noble", said.append)
    (recipe / "packages.txt").write_text("systemd\n")
    base.ensure("noble", said.append)
    assert [line.split()[2] for line in said if line.startswith("building")] == ["trixie", "noble"] * 2


def test_images_with_packages_lie_on_the_bare_one_and_go_with_it(recipe: Path) -> None:
    said: list[str] = []
    compiler, other = (
        base.ensure("bookworm", said.append, packages=packages) for packages in (["g++"], ["git", "cmake"])
    )
    assert [line.removeprefix("building ") for line in said if line.startswith("building")] == [
        "the bookworm image (once, about a minute)",
        "the bookworm image with g++ (once, about a minute)",
        "the bookworm image with cmake, git (once, about a minute)",
    ]
    assert base.ensure("bookworm", silent, packages=["cmake", "git"]) == other
    bare = base.ensure("bookworm", silent)
    assert all(base.image(name).exists() for name in (bare, compiler, other))

    base.ensure("trixie", silent)
    shutil.rmtree(base.image(bare))  # as a build with newer packages begins
    base.ensure("bookworm", silent)
    assert not base.image(compiler).exists() and not base.image(other).exists()


def test_what_a_killed_build_left_goes(recipe: Path) -> None:
    left = base.image(".bookworm-0123456789ab.77")
    (left / "usr").mkdir(parents=True)
    base.ensure("bookworm", silent)
    assert not left.exists()


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(InputError, match=r"^--suite: sid is not one of bookworm, trixie, noble$"):
        base.ensure("sid", silent)
