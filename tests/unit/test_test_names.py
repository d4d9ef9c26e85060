"""A test file stands where its module does and begins with that module's name; checks of the whole tree stand here."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests/unit"


def is_named_after_a_module(path: Path) -> bool:
    """Whether test_lock_images.py has a lock.py, a package lock/ or a lock.css in the folder that its own mirrors."""
    folder = path.parent.relative_to(TESTS)
    names = {there.stem for top in (ROOT / "src/rigup", ROOT) for there in (top / folder).glob("[!_]*")}
    name = path.stem.removeprefix("test_")
    return any(name == module or name.startswith(f"{module}_") for module in names)


def test_every_test_file_is_named_after_its_module() -> None:
    found = [path for path in TESTS.glob("*/**/test_*.py") if not is_named_after_a_module(path)]
    assert sorted(str(path.relative_to(ROOT)) for path in found) == []
