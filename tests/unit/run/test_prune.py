"""What can go of a host: nothing that a release, a plan, a process or a running job needs."""

from __future__ import annotations

from typing import Any

from rigup.run.prune import Leftovers, Removal, removals

WEIGHTS = "/var/lib/rigup/weights"


def found(**changes: Any) -> Leftovers:
    """A host with one thing of each kind, none of it needed."""
    values = {
        "builds": {"vllm-1": {"bytes": 9_000_000_000, "image": ""}},
        "caches": {"/var/cache/rigup/chat/vllm-1": 50_000_000},
        "unfinished": {"/opt/rigup/builds/.result-x": 10},
        "packages": 20_000_000,
        "weights": {f"{WEIGHTS}/a/b/0123": 30_000_000},
        "incoming": {f"{WEIGHTS}/a/b/4567.incoming": 40_000_000},
        "needed_builds": [],
        "needed_weights": [],
        "running": [],
        "jobs": [],
        **changes,
    }
    return Leftovers.model_validate(values)


def going(found: Leftovers, builds: tuple[str, ...] = (), weights: tuple[str, ...] | None = ()) -> list[str]:
    return [removal.what for removal in removals(found, builds, weights)]


ALL = [
    "build vllm-1",
    "cache of chat with vllm-1",
    "unfinished .result-x",
    "Python packages kept for the next build",
    "weights a/b/0123",
    "weights a/b/4567.incoming",
]


def test_all_that_nobody_needs_goes_and_says_how_large_it_is() -> None:
    assert going(found()) == ALL
    first = removals(found(), (), ())[0]
    assert (first, first.text) == (
        Removal("build vllm-1", "/opt/rigup/builds/vllm-1", 9_000_000_000),
        "build vllm-1, 9.0 GB",
    )


def test_weights_stay_unless_they_are_asked_for() -> None:
    assert going(found(), weights=None) == ALL[:4]


def test_a_build_of_a_release_of_the_plan_or_of_a_process_stays() -> None:
    assert going(found(needed_builds=["vllm-1"])) == ALL[2:]
    assert going(found(running=["vllm-1"])) == ALL[2:]
    assert going(found(), builds=("vllm-1",)) == ALL[2:]


def test_weights_of_a_release_or_of_the_plan_stay() -> None:
    assert going(found(needed_weights=[f"{WEIGHTS}/a/b/0123"])) == [*ALL[:4], ALL[5]]
    assert going(found(), weights=(f"{WEIGHTS}/a/b/4567",)) == ALL[:5]


def test_what_a_job_is_at_stays() -> None:
    assert going(found(jobs=["rigup-build-vllm-2.service"])) == [*ALL[:2], *ALL[4:]]
    assert going(found(jobs=["rigup-weights-1.service"])) == ALL[:5]


def test_an_image_goes_with_its_build() -> None:
    image = "docker.io/vllm/vllm-openai@sha256:" + "0" * 64
    (removal, *_) = removals(found(builds={"vllm-1": {"bytes": 1, "image": image}}), (), None)
    assert removal.image == image
