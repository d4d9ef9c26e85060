"""The times of steps: parts of a step together, reboots by themselves, and what the end waited for."""

from __future__ import annotations

import subprocess
import sys

from rigup.run.chains.timing import Span, line, step_times, without_reboots

FIRST_APPLY = [
    Span("base", 0, 12),
    *without_reboots(Span("driver", 12, 302), [(202, 302)]),
    Span("build", 302, 844),
    Span("weights", 12, 202, beside=True),
    Span("weights", 302, 1256, beside=True),
    Span("start", 1256, 1347),
]


def test_the_line_has_what_followed_one_another_then_what_was_beside_then_the_start() -> None:
    assert line(step_times(FIRST_APPLY)) == (
        "base 12.0 s · driver 3 min 10 s · reboot 1 min 40 s · build 9 min 02 s"
        " | weights 19 min 04 s · start 1 min 31 s"
    )


def test_what_the_end_waited_for_is_critical() -> None:
    times = step_times(FIRST_APPLY)
    assert [time.step for time in times if not time.critical] == ["build"]
    slow = [*FIRST_APPLY[:4], Span("build", 302, 1255), *FIRST_APPLY[4:5], Span("weights", 302, 900, beside=True)]
    times = step_times([*slow, FIRST_APPLY[-1]])
    assert [time.step for time in times if not time.critical] == ["weights"]


def test_without_others_beside_it_is_one_chain() -> None:
    assert line(step_times([Span("base", 0, 2), Span("start", 2, 5)])) == "base 2.00 s · start 3.00 s"


def test_a_reboot_is_cut_out_of_its_step() -> None:
    assert without_reboots(Span("driver", 0, 10), [(20, 30), (3, 8)]) == [
        Span("driver", 0, 3),
        Span("reboot", 3, 8),
        Span("driver", 8, 10),
    ]


def test_json_says_what_was_beside_and_what_was_waited_for() -> None:
    (time,) = step_times([Span("weights", 0, 1.26, beside=True)])
    assert time.as_json() == {"step": "weights", "seconds": 1.3, "beside": True, "critical": True}


def test_a_run_without_changes_loads_nothing_of_it() -> None:
    program = (
        "import sys, rigup.run.runner, rigup.run.finish, rigup.cli.output.progress, rigup.cli.output.results\n"
        "print(*(name for name in sys.modules if name.startswith('rigup.run.chains')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
