"""A page is written whole, in one step, where it can be; where it cannot, that is said beforehand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rigup.cli.main import main
from rigup.cli.page.writing import check_writable, write_page
from rigup.errors import InputError


@pytest.mark.parametrize(
    ("path", "why"),
    [("nowhere/page.html", "No such file or directory"), (".", "Is a directory"), ("/dev/null", "not a ")],
)
def test_what_cannot_be_written_is_said_with_its_path(
    path: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        check_writable(path, "--html")
    assert refused.value.message.startswith(f"--html: {path}: {why}")
    assert refused.value.hint == "name a file in a writable folder, or - for standard output"
    assert list(tmp_path.iterdir()) == []


def test_a_check_leaves_nothing_behind_and_the_old_page_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    check_writable(str(page), "--html")
    assert list(tmp_path.iterdir()) == []
    page.write_text("old")
    check_writable(str(page), "--html")
    assert ([path.name for path in tmp_path.iterdir()], page.read_text()) == (["page.html"], "old")


def test_a_page_takes_the_place_of_the_old_one_with_its_permissions(tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("old")
    page.chmod(0o640)
    link.symlink_to(page)
    with page.open() as reader:
        write_page(str(link), "né\n", "--html")
        assert reader.read() == "old"
    assert (page.read_text(encoding="utf-8"), page.stat().st_mode & 0o777) == ("né\n", 0o640)
    assert link.is_symlink() and len(list(tmp_path.iterdir())) == 2


def test_a_new_page_has_what_the_umask_leaves_or_what_is_asked_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_page(str(tmp_path / "a.html"), "", "--html")
        write_page(str(tmp_path / "b.html"), "", "--output", mode=0o600)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a.html", "b.html")] == [0o640, 0o600]


def test_a_page_that_cannot_be_put_there_in_the_end_leaves_no_rest(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(InputError) as refused:
        write_page(str(tmp_path / "page.html"), "", "--html")
    assert refused.value.message == f"--html: {tmp_path}/page.html: Is a directory"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_standard_output_is_a_place_too(capsys: pytest.CaptureFixture[str]) -> None:
    check_writable("-", "--html")
    write_page("-", "page", "--html")
    assert capsys.readouterr().out == "page"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--html", "nowhere/page.html"), "--html: nowhere/page.html: No such file or directory"),
        (("--html", ""), "--html: empty"),
        (("--html", "a.html", "--watch"), "--html cannot be combined with --watch"),
        (("--html", "-", "--json"), "--html - and --json: both would go to standard output"),
    ],
)
def test_status_says_so_before_it_asks_a_host(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    # there is not even an inventory: that would be the next thing to be said
    assert main(["status", *words]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"rigup: {message}"
