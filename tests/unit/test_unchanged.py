"""What a test rests on: any change of it, and nothing else, has the test run again."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from rigup.commands import options
from rigup.project import planning
from tests import applied_plans, fleet_starts, unchanged
from tests import helpers_of as helpers
from tests.applied_plans import PLANNER
from tests.code_digest import NAMES_OF, digest_below
from tests.helpers_of import helpers_of, imports_of
from tests.subjects import DATA, EVERY_TEST, SUBJECTS, TOOLKIT
from tests.unchanged import digest

pytest_plugins = ("pytester",)
assert planning  # pytester takes away what is imported within it, which would plan with a module that no test patched

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
    names = digest_below("names of part", tmp_path)
    file.write_text("3")
    digest_below.cache_clear()
    assert digest_below("names of part", tmp_path) == names
    file.write_text("2")
    file.rename(tmp_path / "part" / "b.py")
    assert len({first, changed, now()}) == 3
    assert digest_below("names of part", tmp_path) != names


def test_a_path_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"gone\.py: named by rests_on, but not in the checkout"):
        digest(("gone.py",), tmp_path)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_path_of_a_subject_exists(subject: str) -> None:
    paths = (path.removeprefix(NAMES_OF) for path in (*SUBJECTS[subject], *EVERY_TEST))
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert missing == []


def forget_digests() -> None:
    """Files have changed, which they do not within a run."""
    of_files = (helpers_of, helpers._named_by, imports_of, helpers._imported_by)
    for cached in (digest_below, unchanged._digest, applied_plans.plans_of, *of_files):
        cached.cache_clear()


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A checkout with two tests that rest on one file, the second of which fails at first; and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path / "cache"))
    for name in ("RIGUP_SKIPPED_TESTS", "RIGUP_COUNTS"):
        monkeypatch.delenv(name, raising=False)
    for path in (*EVERY_TEST, *PLANNER):
        (pytester.path / path).parent.mkdir(parents=True, exist_ok=True)
        (pytester.path / path).touch()
    forget_digests()
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
    forget_digests()
    assert ran(project) == {"passed": 3}
    assert ran(project) == {"passed": 1, "unchanged": 2}
    assert ran(project, "-n", "1") == {"passed": 1, "unchanged": 2}
    assert ran(project, "--everything") == {"passed": 3}


def test_a_test_with_a_cache_of_its_own_is_recorded_all_the_same(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.rests_on("subject.txt")
        def test_alone(monkeypatch, tmp_path):
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

        @pytest.mark.rests_on("subject.txt")
        def test_that_fails_at_its_end(request):
            request.addfinalizer(lambda: 1 / request.config.getoption("--verbose"))
        """
    )
    assert ran(project) == {"passed": 2, "errors": 1}
    assert ran(project, "-v") == {"passed": 2}, "the end of the second failed"
    assert ran(project) == {"unchanged": 2}


def test_a_change_has_them_run_again_and_the_end_names_what_was_skipped(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.path / "ok").touch()
    ran(project)
    forget_digests()
    said = project.runpytest_inprocess("-p", "tests.unchanged", "-p", "no:cacheprovider", "-ra").stdout.str()
    assert "test_it.py: 2 skipped; rests on subject.txt" in said and "SKIPPED" not in said
    monkeypatch.setenv("RIGUP_SKIPPED_TESTS", str(project.path / "skipped"))
    monkeypatch.setenv("RIGUP_COUNTS", str(project.path / "counts"))
    ran(project)
    ran(project, "-n", "1")
    assert (project.path / "counts").read_text() == "1 2\n" * 2
    assert (project.path / "skipped").read_text() == "test_it.py: 2 skipped; rests on subject.txt\n" * 2
    (project.path / "subject.txt").write_text("2")
    forget_digests()
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
    forget_digests()
    assert ran(project) == {"passed": 2}


def test_a_thorough_search_is_repeated_after_a_change_and_a_brief_one_always(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUBJECTS, DATA, ("subject.txt",))
    for name in ("adding", "numbers", "other"):
        (project.path / f"src/rigup/{name}.py").write_text("")
    (project.path / "src/rigup/adding.py").write_text("from rigup import numbers")
    project.makepyfile(
        test_it="""
        from hypothesis import given, settings, strategies

        def add():
            from rigup import adding

        settings.register_profile("thorough", max_examples=20)

        @given(strategies.integers())
        def test_a_property(number):
            assert number == number
        """
    )
    thorough = ("--hypothesis-profile", "thorough")
    assert ran(project) == ran(project) == ran(project, *thorough) == {"passed": 1}
    assert ran(project, *thorough) == {"unchanged": 1}
    assert ran(project) == {"passed": 1}
    for changed, outcome in (
        ("subject.txt", "passed"),
        ("src/rigup/numbers.py", "passed"),
        ("src/rigup/other.py", "unchanged"),
    ):
        (project.path / changed).write_text("number = 2")
        forget_digests()
        assert ran(project, *thorough) == {outcome: 1}, changed


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
        forget_digests()
        assert ran(project) == {outcome: 1}


FLEET = {
    "inventories/rehearsal.py": 'boxes = ["one"]\n',
    "group_data/boxes.py": 'rig = {"gpus": "4x RTX 3090", "host_memory_gib": 64}\n'
    'services = {"chat": {"model": "MiniMax-M2.1", "context": 65536}}\n',
}
APPLIES = """
import pytest
from pathlib import Path
from tests import fleet_starts

@pytest.mark.rests_on("subject.txt")
def test_that_applies():
    fleet_starts.tell(Path("fleet"))
"""


@pytest.fixture
def applying(project: pytest.Pytester) -> pytest.Pytester:
    """A checkout with one test, which applies a fleet, and has passed."""
    project.makepyfile(test_it=APPLIES)
    for path, text in FLEET.items():
        (project.path / "fleet" / path).parent.mkdir(parents=True)
        (project.path / "fleet" / path).write_text(text)
    assert ran(project) == {"passed": 1}
    forget_digests()
    return project


def change_the_planner(project: pytest.Pytester) -> None:
    (project.path / "src/rigup/planner").write_text("another way to the same")
    forget_digests()


def test_a_planner_that_plans_the_same_has_no_test_run_again(applying: pytest.Pytester) -> None:
    assert ran(applying) == {"unchanged": 1}
    change_the_planner(applying)
    assert ran(applying) == {"unchanged": 1}


def test_another_plan_of_a_fleet_that_a_test_applied_has_it_run_again(
    applying: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "WARM_UP_SECONDS", 1)
    change_the_planner(applying)
    assert ran(applying) == {"passed": 1}


def test_what_a_plan_only_says_does_not_count() -> None:
    plan = {"command": ["llama-server"], "figures": [1], "warnings": [{"rule": "quick", "message": "a quick build"}]}
    assert applied_plans._acted_on(plan) == {"command": ["llama-server"], "warnings": ["quick"]}


def test_nothing_that_acts_reads_what_a_plan_only_says() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.attr}"
        for folder in ("roles", "src/rigup/operations", "src/rigup/run", "src/rigup/systemd", "src/rigup/connection")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in applied_plans.SHOWN
    ]
    assert found == []


def test_records_travel_with_the_fleets_that_they_name(
    applying: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(applying.path / "records.json")
    assert unchanged.main(["export", file]) == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(applying.path / "of another machine"))
    assert unchanged.main(["import", file]) == 0
    change_the_planner(applying)
    assert ran(applying) == {"unchanged": 1}


def test_records_of_another_machine_do_not_replace_its_own(applying: pytest.Pytester) -> None:
    file = str(applying.path / "records.json")
    unchanged.main(["export", file])
    (applying.path / "subject.txt").write_text("2")
    forget_digests()
    assert ran(applying) == {"passed": 1}
    unchanged.main(["import", file])
    forget_digests()
    assert ran(applying) == {"unchanged": 1}


def test_only_the_running_test_rests_on_a_fleet(applying: pytest.Pytester) -> None:
    before = {module: set(fleets) for module, fleets in unchanged.applied.items()}
    fleet_starts.tell(applying.path / "fleet")
    mine = Path(__file__)
    assert {module for module in unchanged.applied if unchanged.applied[module] != before.get(module, set())} <= {mine}
