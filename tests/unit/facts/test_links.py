"""The lines of verify_links.py become Links, and nothing else does."""

from __future__ import annotations

import pytest

from rigup.facts.bounds import Unreadable
from rigup.facts.links import parse

LINES = [
    '{"xid": 79, "bus": "0000:01:00", "text": "GPU has fallen off the bus."}',
    '{"gpu": 0, "bus": "0000:01:00.0", "width": 8, "most_width": 16, "host_gbs": 12.5, "acs": []}',
    '{"pair": [0, 1], "read": true, "direct": true, "gbs": 11.0, "correct": false}',
    '{"done": true}',
]


def test_everything_that_was_printed() -> None:
    links = parse(LINES)
    assert (links.gpus[0].width, links.gpus[0].host_gbs, links.gpus[0].acs) == (8, 12.5, [])
    assert (links.pairs[0].pair, links.pairs[0].correct) == ([0, 1], False)
    assert (links.xids[0].xid, links.done, links.error) == (79, True, "")
    assert parse(LINES[:2]).done is False
    assert parse(['{"error": "Driver Not Loaded"}']).error == "Driver Not Loaded"
    assert set(links.model_dump()) == {"gpus", "pairs", "xids", "lost", "error", "done"}
    (lost,) = parse(['{"lost": 2, "bus": "", "error": "GPU is lost"}', *LINES]).lost
    assert (lost.lost, lost.error) == (2, "GPU is lost")


@pytest.mark.parametrize(
    "line",
    ["[]", '{"gpu": -1, "bus": "x"}', '{"gpu": 0}', '{"pair": [0], "read": true}', '{"xid": "79", "bus": "x"}', "nan"],
)
def test_what_the_program_cannot_have_printed(line: str) -> None:
    with pytest.raises(Unreadable, match=r"the output of verify_links\.py"):
        parse([line])


def test_more_lines_than_any_machine_has() -> None:
    with pytest.raises(Unreadable, match="more than 10,000 lines"):
        parse(['{"done": true}'] * 10_001)
