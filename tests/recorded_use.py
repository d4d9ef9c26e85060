"""Holds that tests on machines name what they use: `bin/test --all` records which functions each of them runs.

A test uses a subject if a function of it runs, in the test or in a program that it starts, which runs neither on the
roads that every apply takes, without GPUs and with them (ROADS), nor in any test that names the subject. Programs on
hosts are not recorded: what starts them is. Every test on machines rests on the lab, named or not.
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
    held = {key: {file for subject in key[1] for file in files_of(subject)} for key in together}
    own = {function for key, functions in together.items() for function in functions if _file(function) in held[key]}
    for (module, subjects), functions in sorted(together.items()):
        if not subjects or TOOLKIT in subjects:
            continue
        used: dict[str, list[str]] = defaultdict(list)
        for function in sorted(functions - road - own):
            if subject := subject_of.get(_file(function)):
                used[subject].append(function)
        for subject, its_functions in used.items():
            yield module, subject, its_functions


def _file(function: str) -> str:
    return function.partition(" ")[0]


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
