"""Holds that tests on machines name what they use: `bin/test --all` records which functions each of them runs.

A test uses a subject if a function of it runs, in the test or in a program that it starts, which does not run on the
roads that every apply takes, without GPUs and with them (ROADS). Programs on hosts are not recorded: what starts them
is. Every test on machines rests on the lab, named or not.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

from tests.subjects import LAB, PURPOSES, RUN, TOOLKIT, files_of

ROADS = ("tests/lab/test_apply.py", "tests/lab/driver/test_loaded.py")
VARIABLE = "RIGUP_RECORD_USE"
NAMED = "named"

Use = dict[str, set[str]]
"""The functions that run, as "path function", by the test that has them run."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Says to the recorder whose turn it is, and writes down what the test names."""
    if folder := os.environ.get(VARIABLE):
        import sitecustomize

        sitecustomize.begin(item.nodeid)
        named = {str(subject) for mark in item.iter_markers("rests_on") for subject in mark.args}
        with (Path(folder) / NAMED).open("a") as file:
            file.write("\t".join([item.nodeid, *sorted(named)]) + "\n")
    return (yield)


def recorded(folder: Path) -> Use:
    """What the files of the recorder say."""
    found: Use = defaultdict(set)
    for path in sorted(folder.glob("*-*")):
        test = ""
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("# "):
                test = line[2:]
            elif test:
                found[test].add(line.replace("\t", " "))
    return found


def named(folder: Path) -> dict[str, set[str]]:
    """The subjects that each test names."""
    rows = (line.split("\t") for line in (folder / NAMED).read_text().splitlines())
    return {test: set(subjects) for test, *subjects in rows}


def unnamed(use: Use, named_by: dict[str, set[str]]) -> Iterator[tuple[str, str, list[str]]]:
    """Module, subject and functions, for each subject that tests of one module use and do not name.

    What tests of a module that name the same use is taken together: one of them makes what the others go on with.
    """
    subject_of = {file: subject for subject in {*PURPOSES, RUN} - {LAB} for file in files_of(subject)}
    road = {function for test, functions in use.items() if _module(test) in ROADS for function in functions}
    together: dict[tuple[str, tuple[str, ...]], set[str]] = defaultdict(set)
    for test, names in named_by.items():
        together[_module(test), tuple(sorted(names))] |= use.get(test, set())
    for (module, subjects), functions in sorted(together.items()):
        if not subjects or TOOLKIT in subjects:
            continue
        used: dict[str, list[str]] = defaultdict(list)
        for function in sorted(functions - road):
            subject = subject_of.get(function.partition(" ")[0])
            if subject is not None:
                used[subject].append(function)
        covered = {file for subject in subjects for file in files_of(subject)}
        for subject, its_functions in used.items():
            if missing := [function for function in its_functions if function.partition(" ")[0] not in covered]:
                yield module, subject, missing


def _module(test: str) -> str:
    return test.partition("::")[0]


def main(words: Iterable[str]) -> int:
    """Prints what is used and not named, by the record in a folder; 1 if there is anything."""
    (folder,) = map(Path, words)
    found = list(unnamed(recorded(folder), named(folder)))
    for module, subject, functions in found:
        print(f'{module}: uses "{subject}" and does not name it: {", ".join(functions[:3])}')
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
