"""The levels of a benchmark: presets, options that override them, and bounds."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from rigup.bench.client import LevelRequest
from rigup.errors import InputError
from rigup.plain_values import cut

# by default 28,232 ports are available for connections between two addresses, and each may linger for a minute
MOST_CONCURRENCY = 16_384
MOST_INPUT = 10_000_000
MOST_OUTPUT = 1_000_000
MOST_SECONDS = 86_400
MOST_REQUESTS = 1_000_000
MOST_TOKENS_AT_ONCE = 50_000_000


@dataclass(frozen=True)
class Preset:
    """Every concurrency with every prompt length. seconds or requests: one is None. leave_out: see BenchRequest."""

    concurrency: tuple[int, ...]
    input: tuple[int, ...]
    output: int
    seconds: float | None = None
    requests: int | None = None
    leave_out: bool = False


PRESETS = {
    # five runs of 100 tokens on a prompt of about 1,080 characters, the usual report for single rigs
    "single": Preset((1,), (256,), 100, requests=5),
    # the table that engines' own benchmarks print: 2,048 tokens in, 512 out
    "sweep": Preset(tuple(1 << n for n in range(11)), (2048,), 512, seconds=30),
    "long": Preset((1,), (20_000, 100_000), 256, requests=3, leave_out=True),
}


def chosen(
    preset: str | None,
    concurrency: tuple[int, ...] | None = None,
    input: tuple[int, ...] | None = None,
    output: int | None = None,
    seconds: float | None = None,
    requests: int | None = None,
) -> Preset:
    """A preset with the user's options. Raises InputError naming the flag.

    Without a preset: "single" if there are no options, otherwise the sizes of "sweep" with one request at a time.
    """
    if seconds is not None and requests is not None:
        raise InputError("--seconds and --requests cannot be combined", "omit one of them")
    options = {"concurrency": concurrency, "input": input, "output": output, "seconds": seconds, "requests": requests}
    changes: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    base = PRESETS[preset] if preset else replace(PRESETS["sweep"], concurrency=(1,)) if changes else PRESETS["single"]
    if seconds is not None or requests is not None:
        changes = {"seconds": None, "requests": None, **changes}
    made = replace(base, **changes)
    _check(made)
    return replace(made, leave_out=made.leave_out and input is None)


def levels(preset: Preset) -> tuple[LevelRequest, ...]:
    """The levels: every concurrency with the first length, then with the next one."""
    return tuple(
        LevelRequest(concurrency, length, preset.output, preset.seconds, preset.requests)
        for length, concurrency in product(preset.input, preset.concurrency)
    )


def numbers(text: str, flag: str) -> tuple[int, ...]:
    """Parses whole numbers separated by commas, "1,8,64". Raises InputError naming the flag."""
    try:
        return tuple(int(word) for word in map(_digits, text.split(",")))
    except ValueError:
        raise InputError(
            f'{flag}: "{cut(text)}" is not a list of whole numbers', f"separate numbers with commas: {flag} 1,8,64"
        ) from None


def _digits(word: str) -> str:
    if not re.fullmatch("-?[0-9][0-9_]{0,14}", word.strip()):
        raise ValueError(word)
    return word


def _check(preset: Preset) -> None:
    bounds = [(value, MOST_CONCURRENCY, "--concurrency", "requests at once") for value in preset.concurrency]
    bounds += [(value, MOST_INPUT, "--input", "tokens of prompt") for value in preset.input]
    bounds += [(preset.output, MOST_OUTPUT, "--output", "tokens of answer")]
    if preset.requests is not None:
        bounds += [(preset.requests, MOST_REQUESTS, "--requests", "requests")]
    for value, most, flag, what in bounds:
        if not 1 <= value <= most:
            raise InputError(f"{flag}: {value} is not between 1 and {most} {what}", "use a smaller number")
    if preset.seconds is not None and not 1 <= preset.seconds <= MOST_SECONDS:
        raise InputError(
            f"--seconds: {preset.seconds:g} is not between 1 and {MOST_SECONDS}", "use 30 for a typical measurement"
        )
    at_once, length = max(preset.concurrency), max(preset.input)
    if at_once * length > MOST_TOKENS_AT_ONCE:
        raise InputError(
            f"--concurrency {at_once} with --input {length} needs {at_once * length} prompt tokens at once",
            f"use at most {MOST_TOKENS_AT_ONCE} in total",
        )
    if preset.requests is not None and preset.requests < at_once:
        raise InputError(
            f"--requests {preset.requests} is less than --concurrency {at_once}",
            f"use --requests {4 * at_once} or --seconds 30",
        )
