"""What follows from a content is computed once, in whichever process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kept_by_content import KeptByContent


class Counted:
    """Tells how often it was called."""

    __name__ = "_length"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, content: bytes) -> int:
        self.calls += 1
        return len(content)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rigup/tests"


def test_a_content_is_computed_once_and_by_no_later_process() -> None:
    length = Counted()
    first = KeptByContent(length, "1")
    assert [first(b"abc"), first(b"abc"), first(b"")] == [3, 3, 0]
    first.save()
    assert [KeptByContent(length, "1")(b"abc"), length.calls] == [3, 2]
    assert [KeptByContent(length, "2")(b"abc"), length.calls] == [3, 3], "it goes by something else now"


def test_two_processes_at_once_lose_nothing(cache: Path) -> None:
    length = Counted()
    both = [KeptByContent(length, "1"), KeptByContent(length, "1")]
    for kept, content in zip(both, (b"a", b"bb"), strict=True):
        kept(content)
    for kept in both:
        kept.save()
    after = KeptByContent(length, "1")
    assert [after(b"a"), after(b"bb"), length.calls] == [1, 2, 2]
    assert len(list(cache.iterdir())) == 1


def test_what_was_not_asked_for_any_more_is_forgotten_once_there_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.kept_by_content.MOST", 2)
    length = Counted()
    for content in (b"a", b"bb", b"ccc"):
        kept = KeptByContent(length, "1")
        kept(content)
        kept.save()
    KeptByContent(length, "1")(b"ccc")
    assert length.calls == 3
    KeptByContent(length, "1")(b"a")
    assert length.calls == 4
