"""What somebody hostile, or broken, can send: texts, JSON documents and values; and what must hold of who reads it."""

from __future__ import annotations

import json
import resource
import signal
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hypothesis import strategies as st

from rigup.errors import RigupError

ESCAPES = (
    "\x1b]0;owned\x07",  # sets the window's title
    "\x1b]52;c;b3duZWQ=\x07",  # fills the clipboard
    "\x1b]8;;https://evil.example\x1b\\here\x1b]8;;\x1b\\",  # a link
    "\x1b[2J\x1b[1;1H",  # clears the screen
    "\x1b[8mhidden\x1b[0m",
    "\x1bc",  # resets the terminal
    "\x9b31m",  # CSI of C1
    "\x9d0;owned\x9c",
    "line\rover",
    "a\x08b\x7fc\x00d\x07",
    "\u202eevil\u202c \u2066x\u2069 \u200f\u061c",
    "one\u2028two\u2029three\u200b\ufeff\U000e0041",
    "\ud800 half \udfff",
)
HOSTILE = "before " + " ".join(ESCAPES) + " after"
_OF_RICH = frozenset("\x1b")
SAFETY_S = 180.0
"""Wall time after which a test that would wait for ever has failed, however busy the machine."""


def is_harmless(text: str, colours: bool = False) -> bool:
    """Whether a text holds nothing that drives a terminal, hides or reorders. colours: SGR and cursor of rich's own."""
    if colours:
        import re

        text = re.sub(r"\x1b\[(?:[\d;]*m|\?25[lh]|\d*[AK]|2K|1A)|\r", "", text)
    wrong = [c for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cs")]
    reordering = set("\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
    return not wrong and not reordering & set(text)


# text with all that may go wrong in it: controls, halves of pairs, digits of other scripts, numbers without end
texts = st.one_of(
    st.text(max_size=40),
    st.sampled_from((*ESCAPES, "", "-", "..", "NaN", "Infinity", "1e999", "٣", "9" * 5000, "x" * 100_000)),
    st.text(st.characters(codec=None, exclude_categories=()), max_size=10),
)
numbers = st.one_of(
    st.integers(), st.floats(), st.sampled_from((10**30, -(10**30), 2**63, 10**400, float("inf"), float("nan")))
)
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)


def mangled(value: Any) -> st.SearchStrategy[Any]:
    """The same plain value with some of its parts replaced by others of any kind, or gone."""
    own: st.SearchStrategy[Any]
    if isinstance(value, dict):
        parts = {key: st.one_of(mangled(part)) for key, part in value.items()}
        own = st.fixed_dictionaries({}, optional=parts) | st.fixed_dictionaries(parts)
    elif isinstance(value, (list, tuple)):
        own = st.tuples(*(mangled(part) for part in value)).map(list)
    else:
        own = st.just(value)
    return st.one_of(own, own, own, values)


def toml_value(value: Any) -> str:
    """A plain value as TOML has it; None, which TOML lacks, as an empty text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return hex(value) if value >= 0 else f"-{-value}"  # Python reads hexadecimal digits without end
    return json.dumps("" if value is None else value)


@contextmanager
def ends(seconds: float = SAFETY_S) -> Iterator[None]:
    """Fails what would wait for ever. It is a safety limit: nobody measures with it."""
    with _timer(signal.SIGALRM, signal.ITIMER_REAL, seconds, f"did not end within {seconds} s"):
        yield


@contextmanager
def bounded(seconds: float = 5.0, mib: int = 256) -> Iterator[None]:
    """Fails what takes more processor time than that, waits for ever, or grows the process by more."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = f"took more than {seconds} s of processor time"
    with ends(), _timer(signal.SIGPROF, signal.ITIMER_PROF, seconds, said):
        yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < mib, f"grew by {grown:.0f} MiB"


@contextmanager
def _timer(number: signal.Signals, timer: int, seconds: float, said: str) -> Iterator[None]:
    def late(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(said)

    handler = signal.signal(number, late)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, handler)


def read_safely(
    read: Callable[[], Any], party: str = "", raises: type[Exception] = RigupError, seconds: float = 5.0, mib: int = 256
) -> Any:
    """What `read` returns, or None where it raised the one error that it may, naming the party; all within bounds."""
    with bounded(seconds, mib):
        try:
            return read()
        except raises as error:
            said = error.message if isinstance(error, RigupError) else str(error)
            assert said and party in said, f"{said!r} does not name {party!r}"
            assert len(said) < 2000 and is_harmless(said), said[:200]
            return None
