"""What tests rest on, by name: the only place where `@pytest.mark.rests_on` gets paths of the toolkit from.

A subject names what decides about its tests and can change in this repository; engines, models and packages are pinned
by hash in it. It leaves out how a run on hosts is led and shown, where tests/lab tests that with a stand-in engine:
`bin/test --all` skips no test. Tests on machines and slow tests that name no subject rest on the whole toolkit.
"""

from __future__ import annotations

from pathlib import Path

# Of every marked test, whatever else it names.
EVERY_TEST = ("requirements.txt", "tests/conftest.py", "tests/subjects.py")

# Machines of the lab with a fleet on them.
_MACHINES = (
    "src/rigup/lab",
    "tests/lab/conftest.py",
    "tests/lab/fleet.py",
    "tests/lab/fleet_fixtures.py",
)
# From a description to the commands and units of an engine: data, decision, text.
_COMMANDS = (
    "catalogue",
    "inventories",
    "group_data",
    "src/rigup/catalogue",
    "src/rigup/planner",
    "src/rigup/commands",
    "src/rigup/systemd",
    "src/rigup/monitoring",
    "src/rigup/plan.py",
    "src/rigup/service.py",
    "src/rigup/rig.py",
    "src/rigup/node.py",
)
# What runs on a host, and what has it run there.
_ON_HOSTS = ("deploy", "files", "roles", "src/rigup/layout.py", "src/rigup/operations", "src/rigup/programs")
# Which packages an engine is made of, from the index to the lock and into an environment.
_ENVIRONMENTS = (
    "src/rigup/cache.py",
    "src/rigup/artifacts.py",
    "src/rigup/lock.py",
    "src/rigup/operations",
    "src/rigup/programs/build_environment.py",
    "src/rigup/programs/check_build.py",
)
_LOCKING = (
    "src/rigup/sources/hub.py",
    "src/rigup/lockfile/entries.py",
    "src/rigup/lockfile/package_lists.py",
    "src/rigup/lockfile/needs.py",
    "src/rigup/lockfile/package_diff.py",
    "src/rigup/lockfile/resolver.py",
    "src/rigup/lockfile/upgrade.py",
    "src/rigup/lockfile/lock.py",
    "src/rigup/lockfile/vendor.py",
)
_ENGINE_ON_MACHINES = (
    "rigup.lock",
    "src/rigup/lock.py",
    "src/rigup/operations/service",
    *_MACHINES,
    *_COMMANDS,
    *_ON_HOSTS,
)

TOOLKIT = "the toolkit"
_TESTS = Path(__file__).parent
_HELPERS = tuple(
    str(path.relative_to(_TESTS.parent))
    for path in sorted(_TESTS.rglob("*"))
    if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("test_")
)

SUBJECTS: dict[str, tuple[str, ...]] = {
    # all that a user gets, and what the tests are made of
    TOOLKIT: (
        "benchmarks",
        "bin",
        "catalogue",
        "deploy",
        "files",
        "group_data",
        "inventories",
        "pyproject.toml",
        "rigup.lock",
        "roles",
        "src",
        *_HELPERS,
    ),
    # the lab itself, with what its machines are reached by
    "lab": ("src/rigup/cache.py", *_MACHINES),
    "simulated GPUs": ("src/rigup/cache.py", "src/rigup/programs/nvml.py", "tests/lab/read_nvml.py", *_MACHINES),
    # real engines
    "llama.cpp's build with CUDA": (
        "rigup.lock",
        "src/rigup/cache.py",
        "src/rigup/lock.py",
        "src/rigup/sources/archives.py",
        "src/rigup/programs/build_source.py",
        *_COMMANDS,
    ),
    "llama.cpp on machines": _ENGINE_ON_MACHINES,
    "vLLM on machines": (
        "tests/slow/vllm_fleet.py",
        "tests/tiny_minimax_m2.py",
        *_LOCKING,
        *_ENVIRONMENTS,
        *_ENGINE_ON_MACHINES,
    ),
    "real locks": (
        "src/rigup/lockfile/text.py",
        "src/rigup/catalogue",
        "tests/unit/sources/local_uv.py",
        *_LOCKING,
        *_ENVIRONMENTS,
    ),
    "engines' parsers": ("tests/nodes.py", "tests/unit/sources/local_uv.py", *_COMMANDS, *_ENVIRONMENTS, *_LOCKING),
    "engines' sources": (
        "src/rigup/tuning/run.py",
        "src/rigup/programs/tune_moe.py",
        "src/rigup/programs/tuner_ray.py",
        "tests/golden/engine_functions.py",
        "tests/golden/remote_wheel.py",
        "tests/stand_in_tuner",
        "tests/tuned_kernels.py",
        *_COMMANDS,
        *_ENVIRONMENTS,
    ),
    "Ray on machines": (
        "src/rigup/facts/network.py",
        "tests/lab/installed_fleet.py",
        "tests/lab/wheels.py",
        *_ENVIRONMENTS,
        *_COMMANDS,
        *_ON_HOSTS,
        *_MACHINES,
    ),
    # other software that is real
    "the evaluation harness": (
        "src/rigup/cli/eval.py",
        "src/rigup/cli/output/evaluation.py",
        "src/rigup/evaluation/run.py",
        "src/rigup/evaluation/store.py",
        "src/rigup/connection/tunnel.py",
        "tests/evaluation_tasks",
        *_ENVIRONMENTS,
        *_ENGINE_ON_MACHINES,
    ),
    "the benchmark's client": ("benchmarks", "src/rigup/programs", "src/rigup/operations/service"),
    "the published shapes": (
        "src/rigup/layer_range.py",
        "tests/published",
        "tests/unit/sources/local_uv.py",
    ),
    "the pages": (
        "src/rigup/cli/fit/page.py",
        "src/rigup/cli/page",
        "src/rigup/bench/store.py",
        "tests/lab/gpu_fleet.py",
        "tests/slow/chromium.py",
        "tests/unit/cli/page/page_content.py",
        "tests/unit/cli/page/test_document.py",
        "tests/unit/cli/test_fit_page.py",
        *_MACHINES,
    ),
    "monitoring": (
        "rigup.lock",
        "src/rigup/cli/metrics.py",
        "src/rigup/project/scrape_targets.py",
        "tests/stand_in_metrics",
        *_COMMANDS,
        *_ON_HOSTS,
        *_MACHINES,
    ),
}


def paths_of(subject: str) -> tuple[str, ...]:
    """The files and folders of a subject; a path stands for itself."""
    return SUBJECTS.get(subject, (subject,))
