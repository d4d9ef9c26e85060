"""Tests that are skipped while nothing they rest on has changed since they passed.

A pytest plugin. `@pytest.mark.rests_on("driver", "docs/lab.md")` names subjects of tests/subjects.py, and files and
folders of the checkout. The test's own module counts too, and of it and of every module named the helpers that it
imports and the files that they name; the lab where it boots machines; and the plans of the fleets that it applied
(tests/applied_plans.py). A test on machines and a slow test rest on the whole toolkit where they name nothing. A
property that is searched thoroughly rests on the modules that its own module comes to import, and on the data.

When a test passes, what it rested on before the run is recorded in the cache. The tests of a module that name the same
go on from one another, so they are skipped all together or not at all. The end of the run lists what was skipped.
`--everything` skips no test. Records travel: `python -m tests.unchanged export FILE` and `import FILE`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rigup.cache import cache_folder
from tests import fleet_starts
from tests.applied_plans import PLANNER, Fleet, fleet_in, forget_others, keep, kept, plans_now, plans_of
from tests.code_digest import code_digest, digest_below
from tests.helpers_of import helpers_of, imports_of, named_in
from tests.subjects import DATA, EVERY_TEST, LAB, TOOLKIT, paths_of

UNCHANGED = "passed, unchanged since: "
RECORDS = "passed"
THOROUGH = "thorough"
"""The profile of tests/conftest.py with many examples."""
IMPORTED = "what it imports"
"""A subject of each module's own."""


@dataclass(frozen=True)
class Record:
    """What a test rested on when it passed.

    digest: of all files but the planner's. planner: the digest of the planner. plans: the digest of the plans of each
    fleet that the tests of its module had applied by then, by the fleet's name in the cache.
    """

    test: str
    digest: str
    planner: str
    plans: dict[str, str] = field(default_factory=dict)

    def write(self) -> None:
        """Puts it into the cache."""
        path = _path_of(self.test)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)))


BEFORE = pytest.StashKey[Record]()
PASSED = pytest.StashKey[bool]()
applied: dict[Path, set[str]] = defaultdict(set)
"""The fleets, by name in the cache, that the tests of a module have applied."""
_running: list[Path] = []


def _note_fleet(root: Path) -> None:
    """The running test rests on the plans that rigup makes in this folder."""
    if _running:
        applied[_running[-1]].add(keep(fleet_in(root)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--everything", action="store_true", help="skip no test for having passed on the same files")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "rests_on(*subjects): skipped while these are as when it passed; see tests/subjects.py",
    )
    if _note_fleet not in fleet_starts.listeners:
        fleet_starts.listeners.append(_note_fleet)


@pytest.hookimpl(trylast=True)  # what -m and -k leave out does not count
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    of_module: dict[tuple[Path, tuple[str, ...]], list[pytest.Item]] = defaultdict(list)
    marked = [item for item in items if _subjects(item)]
    planner = digest(PLANNER, config.rootpath) if marked else ""
    for item in marked:
        # before the first test: files may change while the tests run
        item.stash[BEFORE] = Record(_name(item), _digest_of(item), planner)
        of_module[item.path, _subjects(item)].append(item)
    for kept_by_content in (code_digest, named_in):
        kept_by_content.save()
    if config.getoption("--everything"):
        return
    recorded = {item.nodeid: record_of(_name(item)) for item in marked}
    same = _with_the_same_plans([record for record in recorded.values() if record], planner)
    for together in of_module.values():
        if all(_holds(recorded[item.nodeid], item.stash[BEFORE], same) for item in together):
            for item in together:
                item.add_marker(pytest.mark.skip(reason=UNCHANGED + ", ".join(_subjects(item))))


def _holds(record: Record | None, now: Record, same_plans: set[str]) -> bool:
    return record is not None and record.digest == now.digest and record.test in same_plans


def _with_the_same_plans(records: list[Record], planner: str) -> set[str]:
    """The tests whose fleets are planned as they were."""
    other = [record for record in records if record.planner != planner and record.plans]
    now = plans_now({name for record in other for name in record.plans}, planner) if other else {}
    changed = {record.test for record in other if any(now.get(name) != was for name, was in record.plans.items())}
    return {record.test for record in records} - changed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _running.append(item.path)
    try:
        return (yield)
    finally:
        _running.pop()
        if _subjects(item):  # only now: its fixtures may have given it a cache of its own
            _record_end(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed or (report.when == "call" and report.passed):
        item.stash[PASSED] = report.passed
    return report


def _record_end(item: pytest.Item) -> None:
    """Nothing is known of a test that was skipped or stopped."""
    passed = item.stash.get(PASSED, None)
    if passed:
        before = item.stash[BEFORE]
        plans = {name: plans_of(name) for name in applied[item.path]}
        Record(before.test, before.digest, before.planner, plans).write()
    elif passed is False:
        _path_of(_name(item)).unlink(missing_ok=True)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A word of its own, so that -ra does not list each of them."""
    return ("unchanged", "u", "UNCHANGED") if _reason(report) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists what was skipped; in the file RIGUP_SKIPPED_TESTS if set, for the end of several runs.

    The file RIGUP_COUNTS gets a line: how many tests passed, and how many were skipped for being unchanged.
    """
    if hasattr(terminalreporter.config, "workerinput"):  # the controller has what workers skipped
        return
    unchanged = terminalreporter.getreports("unchanged")
    skipped = Counter((report.nodeid.partition("::")[0], _reason(report)) for report in unchanged)
    if path := os.environ.get("RIGUP_COUNTS"):
        with open(path, "a") as file:
            file.write(f"{len(terminalreporter.getreports('passed'))} {len(unchanged)}\n")
    if not skipped:
        return
    lines = [f"{path}: {count} skipped; rests on {subjects}" for (path, subjects), count in sorted(skipped.items())]
    if path := os.environ.get("RIGUP_SKIPPED_TESTS"):
        with open(path, "a") as file:
            file.writelines(f"{line}\n" for line in lines)
        return
    terminalreporter.section("skipped: passed, and unchanged since (bin/test --all runs them)")
    for line in lines:
        terminalreporter.line(line)


def digest(paths: Iterable[str], root: Path) -> str:
    """Of the names and contents of all files at or below `paths`, and of the Python that runs."""
    total = hashlib.sha256(sys.version.encode())
    for path in paths:
        total.update(digest_below(path, root))
    return total.hexdigest()


def _subjects(item: pytest.Item) -> tuple[str, ...]:
    named = {str(subject) for mark in item.iter_markers("rests_on") for subject in mark.args}
    on_machines = item.get_closest_marker("lab") is not None
    if _is_searched_thoroughly(item):
        return (DATA, IMPORTED)
    if not named and (on_machines or item.get_closest_marker("slow")):
        return (TOOLKIT,)
    return tuple(sorted({*named, LAB} if on_machines else named))


def _is_searched_thoroughly(item: pytest.Item) -> bool:
    profile = item.config.getoption("--hypothesis-profile", None)
    return profile == THOROUGH and item.get_closest_marker("hypothesis") is not None


def _name(item: pytest.Item) -> str:
    """Of its record: a few examples say nothing about many."""
    return f"{item.nodeid} ({THOROUGH})" if _is_searched_thoroughly(item) else item.nodeid


def _digest_of(item: pytest.Item) -> str:
    return _digest(_subjects(item), item.path, item.config.rootpath)


@cache
def _digest(subjects: tuple[str, ...], module: Path, root: Path) -> str:
    named = {path for subject in subjects if subject != IMPORTED for path in paths_of(subject)}
    named |= set(imports_of(module, root)) if IMPORTED in subjects else set()
    modules = [module, *(root / subject for subject in subjects if subject.endswith(".py"))]
    return digest(sorted({*named, *EVERY_TEST, *(path for each in modules for path in helpers_of(each, root))}), root)


def _path_of(test: str) -> Path:
    return cache_folder() / "tests" / RECORDS / f"{hashlib.sha256(test.encode()).hexdigest()[:32]}.json"


def record_of(test: str) -> Record | None:
    """What was recorded of a test that passed."""
    path = _path_of(test)
    return Record(**json.loads(path.read_text())) if path.is_file() else None


def _reason(report: object) -> str:
    """The subjects of a test that was skipped for being unchanged; empty for any other."""
    told = getattr(report, "longrepr", None)
    if getattr(report, "skipped", False) and isinstance(told, tuple):
        _, found, subjects = str(told[2]).partition(UNCHANGED)
        return subjects if found else ""
    return ""


def exported() -> dict[str, object]:
    """Every record of the cache, with the fleets that they name; fleets that none names are forgotten."""
    paths = sorted(_path_of("").parent.glob("*.json"))
    records = [json.loads(path.read_text()) for path in paths]
    names = {name for record in records for name in record["plans"]}
    forget_others(names)
    fleets: dict[str, Fleet] = {name: fleet for name in sorted(names) if (fleet := kept(name)) is not None}
    return {"records": records, "fleets": fleets}


def imported(said: dict[str, Any]) -> int:
    """Puts exported records into the cache, where a test has none. Returns how many it put there."""
    new = [record for record in (Record(**one) for one in said["records"]) if record_of(record.test) is None]
    for fleet in said["fleets"].values():
        keep(fleet)
    for record in new:
        record.write()
    return len(new)


def main(words: list[str]) -> int:
    """`export FILE` or `import FILE`."""
    match words:
        case ["export", file]:
            Path(file).write_text(json.dumps(exported(), indent=1))
        case ["import", file]:
            print(f"{imported(json.loads(Path(file).read_text()))} records of tests that passed elsewhere")
        case _:
            print("python -m tests.unchanged export FILE | import FILE", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
