"""What tests on machines and slow tests rest on, by name: the only place where `@pytest.mark.rests_on` gets paths from.

A subject is what acts for one purpose, on hosts and on the controlling machine meanwhile; "the run" is what is left of
what acts. What decides and what shows belongs to none: a test rests on the plans that it applied instead, as bytes
(tests/applied_plans.py), and the output has tests of its own.

A test names what it exercises beyond the road that every apply takes, which tests/lab/test_apply.py walks, and with
GPUs tests/lab/driver/test_loaded.py; a recording holds that it does (tests/recorded_use.py). What no subject has is
named by its path.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.applied_plans import PLANNER
from tests.code_digest import NAMES_OF

ROOT = Path(__file__).parents[1]
# Of every marked test, whatever else it names.
EVERY_TEST = ("requirements.txt",)
ACTS = ("files", "roles", "src/rigup")
SHOWS = tuple(
    f"src/rigup/cli/{name}" for name in ("calibrate.py", "completion", "fit", "output", "page", "plan.py", "schema")
)

RUN, LAB, TOOLKIT, PLANNING, DATA = "the run", "lab", "the toolkit", "the planner", "the data"

PURPOSES: dict[str, tuple[str, ...]] = {
    # what a host gets
    "weights": (
        "roles/weights.py",
        "src/rigup/operations/weights",
        "src/rigup/programs/weights",
        "src/rigup/run/weights",
    ),
    "builds from source": (
        "roles/engine_llama_cpp.py",
        "src/rigup/operations/builds/builders.py",
        "src/rigup/operations/builds/builders_at_work.py",
        "src/rigup/operations/builds/controller.py",
        "src/rigup/operations/builds/records.py",
        "src/rigup/operations/builds/source.py",
        "src/rigup/programs/build_source.py",
    ),
    "environments": (
        "roles/engine_environment.py",
        "roles/judgement.py",
        "src/rigup/cli/judgement.py",
        "src/rigup/facts/judgement.py",
        "src/rigup/operations/judgement.py",
        "src/rigup/operations/judges",
        "src/rigup/programs/judge",
        "src/rigup/run/judgement.py",
        "src/rigup/operations/builds/python.py",
        "src/rigup/operations/builds/wheels.py",
        "src/rigup/programs/build_environment.py",
        "src/rigup/programs/compile_kernels.py",
    ),
    "images": (
        "roles/engine_image.py",
        "src/rigup/operations/container",
        "src/rigup/programs/pull_image.py",
        "src/rigup/systemd/container_files.py",
        "src/rigup/systemd/quadlet.py",
    ),
    "driver": (
        "deploy/driver.py",
        "roles/driver.py",
        "roles/gpus.py",
        "src/rigup/operations/apt/foreign_sources.py",
        "src/rigup/operations/apt/nvidia_repository.py",
        "src/rigup/operations/apt/openpgp.py",
        "src/rigup/operations/driver",
        "src/rigup/preflight/driver.py",
        "src/rigup/systemd/driver_files.py",
        "src/rigup/systemd/power_limit.py",
    ),
    "links": (
        "src/rigup/cli/verify",
        "src/rigup/operations/driver/links.py",
        "src/rigup/programs/links",
        "src/rigup/run/verification.py",
    ),
    "gateways": (
        "roles/gateway.py",
        "src/rigup/gateway",
        "src/rigup/gateway_settings.py",
        "src/rigup/operations/gateway",
        "src/rigup/programs/gateway",
        "src/rigup/project/gateways.py",
        "src/rigup/run/gateways",
    ),
    "monitoring": (
        "deploy/monitoring.py",
        "roles/monitoring.py",
        "src/rigup/cli/metrics.py",
        "src/rigup/monitoring",
        "src/rigup/operations/monitoring.py",
        "src/rigup/programs/release_metrics.py",
        "src/rigup/project/scrape_targets.py",
    ),
    "node groups": (
        "roles/node_group.py",
        "src/rigup/operations/multinode",
        "src/rigup/programs/ray_node.py",
        "src/rigup/programs/run_together.py",
        "src/rigup/run/multinode",
        "src/rigup/systemd/ray.py",
    ),
    # what a person does
    "tuning": (
        "src/rigup/cli/tune.py",
        "src/rigup/operations/service/moe_configs.py",
        "src/rigup/programs/tune_moe.py",
        "src/rigup/programs/tuner_ray.py",
        "src/rigup/tuning",
    ),
    "benchmarks of services": ("src/rigup/bench", "src/rigup/cli/bench.py", "src/rigup/programs/bench"),
    "evaluation": ("src/rigup/cli/eval.py", "src/rigup/evaluation", "src/rigup/sources/evaluation_environment.py"),
    "rollouts": (
        "src/rigup/cli/sessions/rollout.py",
        "src/rigup/run/rollout.py",
        "src/rigup/run/rollout_state.py",
    ),
    "rollback": (
        "src/rigup/cli/releases.py",
        "src/rigup/cli/rollback.py",
        "src/rigup/operations/service/rollback.py",
        "src/rigup/run/rollback.py",
    ),
    "drift and status": (
        "src/rigup/cli/diff.py",
        "src/rigup/cli/status.py",
        "src/rigup/run/drift.py",
        "src/rigup/run/drift_probe.py",
    ),
    "reports": ("src/rigup/cli/report.py", "src/rigup/report"),
    "running services": (
        "src/rigup/cli/compare.py",
        "src/rigup/cli/log.py",
        "src/rigup/cli/prune.py",
        "src/rigup/cli/service",
        "src/rigup/cli/uninstall.py",
        "src/rigup/connection/command_lines.py",
        "src/rigup/connection/tunnel.py",
        "src/rigup/operations/whole_removal.py",
        "src/rigup/run/prune.py",
        "src/rigup/run/services",
        "src/rigup/run/whole_hosts",
    ),
    "new hosts": (
        "src/rigup/cli/init.py",
        "src/rigup/cli/sessions/new_host.py",
        "src/rigup/cli/up",
        "src/rigup/project/rig_from_probe.py",
    ),
    "locking": (
        "src/rigup/cli/lock.py",
        "src/rigup/cli/model.py",
        "src/rigup/lockfile",
        "src/rigup/sources",
    ),
    # what tests are made with
    LAB: ("src/rigup/cli/lab", "src/rigup/lab"),
}
_SHIPPED = ("catalogue", "deploy", "docs", "files", "group_data", "inventories", "roles", "src")

# Data of the catalogue that says what an engine's own package is and can do, by engine.
_ENGINES = {
    "llama.cpp": ("engines/llama_cpp.toml", "engines/abilities/llama_cpp.json", "engines/flags/llama_cpp.json"),
    "vLLM": ("engines/vllm.toml", "engines/abilities/vllm.json", "engines/flags/vllm.json", "runtimes/vllm.toml"),
    "SGLang": (
        "engines/sglang.toml",
        "engines/abilities/sglang.json",
        "engines/flags/sglang.json",
        "runtimes/sglang.toml",
    ),
}


def _below(paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        top = ROOT / path.removeprefix(NAMES_OF)
        for file in [top] if top.is_file() else sorted(top.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield str(file.relative_to(ROOT))


def _rest() -> tuple[str, ...]:
    """What acts and has no other purpose."""
    taken = {file for paths in (*PURPOSES.values(), PLANNER, SHOWS) for file in _below(paths)}
    return tuple(file for file in _below(ACTS) if file not in taken)


SUBJECTS: dict[str, tuple[str, ...]] = {
    **PURPOSES,
    RUN: _rest(),
    PLANNING: PLANNER,
    "the output": SHOWS,
    DATA: ("catalogue", "files", "group_data", "inventories", "rigup.lock", "src/rigup/catalogue/data"),
    "the wheel": (".ci/release", "pyproject.toml", "src/rigup/toolkit.py", *(f"{NAMES_OF}{path}" for path in _SHIPPED)),
    TOOLKIT: (
        "catalogue",
        "deploy",
        "files",
        "group_data",
        "inventories",
        "pyproject.toml",
        "rigup.lock",
        *ACTS[1:],
    ),
    **{
        f"{engine}'s package": tuple(f"src/rigup/catalogue/data/{path}" for path in paths)
        for engine, paths in _ENGINES.items()
    },
}


def paths_of(subject: str) -> tuple[str, ...]:
    """The files and folders of a subject; a path stands for itself."""
    return SUBJECTS.get(subject, (subject,))


def files_of(subject: str) -> tuple[str, ...]:
    """The files of a subject."""
    return tuple(_below(paths_of(subject)))
