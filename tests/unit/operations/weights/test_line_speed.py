"""The rate at which a host downloads, by what curl says there, which may be nothing."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.lock import LockedFile
from rigup.operations.primitives import remote
from rigup.operations.primitives.remote import Output
from rigup.operations.weights import line_speed
from rigup.plan import Checkpoint


def rate(monkeypatch: pytest.MonkeyPatch, said: str, limit: int = 0, **more: Any) -> tuple[Any, ...]:
    """The rate, the address that was asked, and the option of a limit."""
    asked: list[str] = []

    def run(host: Any, *words: str, timeout: float) -> Output:
        asked.extend(words[-2:])
        return Output(True, said, "")

    monkeypatch.setattr(remote, "run", run)
    files = tuple(LockedFile(path=name, size=size, sha256=name[0] * 64) for name, size in (("a b.gguf", 9), ("c", 1)))
    checkpoint = Checkpoint(repo="o/m", quant="Q4_1", revision="f" * 40, files=files, bytes=10, **more)
    return line_speed.bytes_per_second(object(), checkpoint, "https://hub/", limit), *asked  # type: ignore[arg-type]


def test_all_connections_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    found, address, _ = rate(monkeypatch, "50000000 5.000123\n10000000 5.000100\n")
    assert found is not None and round(found) == 11_999_705
    assert address == f"https://hub/o/m/resolve/{'f' * 40}/a%20b.gguf"


@pytest.mark.parametrize("said", ["", "0 5.0\n", "garbage\n", "1e9 1.0\n", f"{'9' * 40} 1.0\n", "5 0.0\n"])
def test_what_is_not_a_measurement_is_none(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    assert rate(monkeypatch, said)[0] is None


def test_the_limit_of_downloads_counts_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rate(monkeypatch, "", limit=4_000_000)[2] == "--limit-rate 1000000"
    assert rate(monkeypatch, "")[2] == ""
