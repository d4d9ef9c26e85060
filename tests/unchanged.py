"""Tests that are skipped while nothing they rest on has changed since they passed on this machine.

A pytest plugin. `@pytest.mark.rests_on("lab", "tests/slow/chromium.py")` names subjects of tests/subjects.py, and files
and folders of the checkout; the test's own module counts too. A test on machines and a slow test rest on the whole
toolkit where they name nothing. When the test passes, the digest that all of them had before the run is kept in the
cache. The marked tests of one module go on from one another, so they are skipped all together or not at all. The end
of the run lists what was skipped, and why. `--everything` skips no test.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Generator
from functools import lru_cache
from pathlib import Path

import pytest

from rigup.cache import cache_folder
from tests.subjects import EVERY_TEST, TOOLKIT, paths_of

UNCHANGED = "passed here, unchanged since: "
DIGEST = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--everything", action="store_true", help="skip no test for having passed on the same files")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "rests_on(*subjects): skipped while these are as when it passed here; see tests/subjects.py",
    )


@pytest.hookimpl(trylast=True)  # what -m and -k leave out does not count
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    of_module: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if _subjects(item):
            item.stash[DIGEST] = _digest_of(item)  # before the first test: files may change while the tests run
            of_module[item.path].append(item)
    if config.getoption("--everything"):
        return
    for together in of_module.values():
        if all(_passed(item) for item in together):
            for item in together:
                item.add_marker(pytest.mark.skip(reason=UNCHANGED + ", ".join(_subjects(item))))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _subjects(item):
        if report.when == "call" and report.passed:
            _record(item).parent.mkdir(parents=True, exist_ok=True)
            _record(item).write_text(item.stash[DIGEST])
        elif report.failed:
            _record(item).unlink(missing_ok=True)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A word of its own, so that -ra does not list each of them."""
    return ("unchanged", "u", "UNCHANGED") if _reason(report) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists what was skipped; in the file RIGUP_SKIPPED_TESTS if set, for the end of several runs."""
    skipped = Counter(
        (report.nodeid.partition("::")[0], _reason(report)) for report in terminalreporter.getreports("unchanged")
    )
    if not skipped or hasattr(terminalreporter.config, "workerinput"):  # the controller has what workers skipped
        return
    lines = [f"{path}: {count} skipped; rests on {subjects}" for (path, subjects), count in sorted(skipped.items())]
    if path := os.environ.get("RIGUP_SKIPPED_TESTS"):
        with open(path, "a") as file:
            file.writelines(f"{line}\n" for line in lines)
        return
    terminalreporter.section("skipped: passed here, and unchanged since (bin/test --all runs them)")
    for line in lines:
        terminalreporter.line(line)


def digest(paths: tuple[str, ...], root: Path) -> str:
    """Of the names and contents of all files at or below `paths`, and of the Python that runs."""
    total = hashlib.sha256(sys.version.encode())
    for path in paths:
        total.update(digest_below(path, root))
    return total.hexdigest()


@lru_cache(maxsize=1024)
def digest_below(path: str, root: Path) -> bytes:
    """Of the names and contents of all files at or below one path."""
    top = root / path
    assert top.exists(), f"{path}: named by rests_on, but not in the checkout"
    total = hashlib.sha256()
    for file in sorted([top] if top.is_file() else top.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            total.update(f"{file.relative_to(root)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.digest()


def _subjects(item: pytest.Item) -> tuple[str, ...]:
    named = {str(subject) for mark in item.iter_markers("rests_on") for subject in mark.args}
    if not named and any(item.get_closest_marker(level) for level in ("lab", "slow")):
        return (TOOLKIT,)
    return tuple(sorted(named))


def _digest_of(item: pytest.Item) -> str:
    named = {path for subject in _subjects(item) for path in paths_of(subject)}
    root = item.config.rootpath
    return digest(tuple(sorted({*named, *EVERY_TEST, str(item.path.relative_to(root))})), root)


def _record(item: pytest.Item) -> Path:
    return cache_folder() / "tests" / "passed" / hashlib.sha256(item.nodeid.encode()).hexdigest()[:32]


def _passed(item: pytest.Item) -> bool:
    return _record(item).is_file() and _record(item).read_text() == item.stash[DIGEST]


def _reason(report: object) -> str:
    """The subjects of a test that was skipped for being unchanged; empty for any other."""
    told = getattr(report, "longrepr", None)
    if getattr(report, "skipped", False) and isinstance(told, tuple):
        _, found, subjects = str(told[2]).partition(UNCHANGED)
        return subjects if found else ""
    return ""
