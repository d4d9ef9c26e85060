"""What a test rests on: any change of it, and nothing else, has the test run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.subjects import EVERY_TEST, SUBJECTS, TOOLKIT
from tests.unchanged import digest, digest_below

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]

TESTS = """
import pytest
from pathlib import Path

@pytest.mark.rests_on("subject.txt")
def test_first():
    pass

@pytest.mark.rests_on("subject.txt")
def test_second():
    assert Path("ok").exists()

def test_of_nothing():
    pass
"""


def test_content_and_names_count_and_compiled_files_do_not(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    file = tmp_path / "part" / "a.py"
    file.write_text("1")

    def now() -> str:
        digest_below.cache_clear()
        return digest(("part",), tmp_path)

    first = now()
    (tmp_path / "part" / "__pycache__").mkdir()
    (tmp_path / "part" / "__pycache__" / "a.pyc").write_text("compiled")
    assert now() == first
    file.write_text("2")
    changed = now()
    file.rename(tmp_path / "part" / "b.py")
    assert len({first, changed, now()}) == 3


def test_a_path_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"gone\.py: named by rests_on, but not in the checkout"):
        digest(("gone.py",), tmp_path)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_path_of_a_subject_exists(subject: str) -> None:
    missing = [path for path in (*SUBJECTS[subject], *EVERY_TEST) if not (ROOT / path).exists()]
    assert missing == []


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A checkout with two tests that rest on one file, the second of which fails at first; and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path / "cache"))
    monkeypatch.delenv("RIGUP_SKIPPED_TESTS", raising=False)
    for path in EVERY_TEST:
        (pytester.path / path).parent.mkdir(exist_ok=True)
        (pytester.path / path).touch()
    digest_below.cache_clear()
    pytester.makepyfile(test_it=TESTS)
    (pytester.path / "subject.txt").write_text("1")
    return pytester


def ran(project: pytest.Pytester, *words: str) -> dict[str, int]:
    """How many tests ended in which way."""
    result = project.runpytest_inprocess("-p", "tests.unchanged", "-p", "no:cacheprovider", *words)
    return result.parseoutcomes()


def test_the_tests_of_a_module_are_skipped_together_once_all_have_passed(project: pytest.Pytester) -> None:
    assert ran(project) == {"passed": 2, "failed": 1}
    assert ran(project) == {"passed": 2, "failed": 1}, "the first goes before the second"
    (project.path / "ok").touch()
    assert ran(project) == {"passed": 3}
    assert ran(project) == {"passed": 1, "unchanged": 2}
    assert ran(project, "-n", "1") == {"passed": 1, "unchanged": 2}
    assert ran(project, "--everything") == {"passed": 3}


def test_a_change_has_them_run_again_and_the_end_names_what_was_skipped(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.path / "ok").touch()
    ran(project)
    said = project.runpytest_inprocess("-p", "tests.unchanged", "-p", "no:cacheprovider", "-ra").stdout.str()
    assert "test_it.py: 2 skipped; rests on subject.txt" in said and "SKIPPED" not in said
    monkeypatch.setenv("RIGUP_SKIPPED_TESTS", str(project.path / "skipped"))
    ran(project)
    ran(project, "-n", "1")
    assert (project.path / "skipped").read_text() == "test_it.py: 2 skipped; rests on subject.txt\n" * 2
    (project.path / "subject.txt").write_text("2")
    digest_below.cache_clear()
    assert ran(project) == {"passed": 3}


def test_a_test_on_machines_that_names_nothing_rests_on_the_toolkit(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUBJECTS, TOOLKIT, ("subject.txt",))
    project.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.lab
        def test_on_a_machine():
            pass

        @pytest.mark.slow
        def test_that_takes_long():
            pass
        """
    )
    assert ran(project) == {"passed": 2}
    assert ran(project) == {"unchanged": 2}
    (project.path / "subject.txt").write_text("2")
    digest_below.cache_clear()
    assert ran(project) == {"passed": 2}


def test_what_changes_during_the_run_is_tested_again(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest
        from pathlib import Path

        @pytest.mark.rests_on("subject.txt")
        def test_during_which_somebody_edits():
            Path("subject.txt").write_text("2")
        """
    )
    for outcome in ("passed", "passed", "unchanged"):
        digest_below.cache_clear()
        assert ran(project) == {outcome: 1}
