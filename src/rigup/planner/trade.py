"""Says what the choice gave up: the candidates with more bits and with more speed, and the preference for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rigup.planner.choice import Score, values

# A difference in speed that is worth a sentence: an estimate is off by a fifth on average.
_FASTER = 1.25
_FINER_BITS = 0.25


def traded(order: Sequence[Score]) -> tuple[str, ...]:
    """Sentences about what the best candidate gives up, () if nothing. order: not empty, the best first."""
    winner = order[0]
    # A preference does not bring offload, pruning or a small cache.
    rivals = [other for other in order[1:] if values(other.necessities) <= values(winner.necessities)]
    return tuple(dict.fromkeys((*_finer(winner, rivals), *_faster(winner, rivals))))


def _finer(winner: Score, rivals: Sequence[Score]) -> Iterator[str]:
    best = max(rivals, key=lambda other: other.bits, default=winner)
    if best.bits - winner.bits < _FINER_BITS or winner.candidate.service.prefer == "quality":
        return
    slower = f", {winner.speed / best.speed:.1f} times slower" if winner.speed > best.speed * _FASTER else ""
    yield (
        f"{_name(best)} has {best.bits - winner.bits:.1f} bits a weight more ({best.quality.level}{slower}): "
        'prefer = "quality" takes the most bits'
    )


def _faster(winner: Score, rivals: Sequence[Score]) -> Iterator[str]:
    best = max(rivals, key=lambda other: other.speed, default=winner)
    if best.speed > winner.speed * _FASTER and winner.candidate.service.prefer != "speed":
        yield (
            f"{_name(best)} is estimated to be {best.speed / winner.speed:.1f} times as fast ({best.quality.level}): "
            'prefer = "speed" takes the fastest that is not degraded'
        )


def _name(score: Score) -> str:
    return f"{score.candidate.checkpoint.quant} on {score.candidate.engine.title}"
