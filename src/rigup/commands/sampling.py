"""Sampling defaults: the recommendation of the model's maker, overridden by the user's values."""

from __future__ import annotations

import json

from rigup.planner.candidate import Candidate


def sampling(candidate: Candidate) -> dict[str, int | float]:
    """Maps parameter to value; counts such as top_k are whole numbers, as the servers require."""
    merged = {**candidate.model.sampling, **candidate.service.sampling}
    return {name: int(value) if name == "top_k" else value for name, value in merged.items()}


def sampling_json(candidate: Candidate) -> str | None:
    """The sampling defaults as one word of compact JSON; None without values."""
    found = sampling(candidate)
    return json.dumps(found, separators=(",", ":")) if found else None
