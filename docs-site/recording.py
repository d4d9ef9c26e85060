"""Records `rigup up` on a lab machine, in a real shell in a pseudo-terminal, as docs/pictures/up.svg. As root.

    bin/recording

The machine is bare and has no GPU; the model comes from the lab's hub, the compiled llama.cpp from this machine's
cache, or it is compiled first. What is shown is what was printed; waits, also those in which only a clock moves, are
cut to two seconds.
"""

from __future__ import annotations

import argparse
import codecs
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from itertools import groupby
from pathlib import Path
from termios import TIOCSWINSZ

import pyte
from terminal_svg import Line, Screen, Words, animation

ROOT = Path(__file__).resolve().parents[1]
RIGUP = ROOT / ".venv/bin/rigup"
COLUMNS, ROWS = 76, 30
LAB = "film"
HOST = "box1.lan"
COMMAND = f"rigup up ops@{HOST} SmolLM2-135M-Instruct"
PROMPT, QUESTION = "$ ", "[y/N]"
TITLE = "rigup up takes a bare machine to a service that has answered a question"
LONGEST_PAUSE, SHORTEST_SCREEN = 2.0, 0.3
CLOCKS = re.compile("[\\d.:\u2800-\u28ff]+")
"""What moves while nothing happens: figures, and the spinner."""
SECONDS = 1800
Printed = list[tuple[float, bytes]]


def main() -> None:
    """Records and writes the picture."""
    parser = argparse.ArgumentParser(
        prog="bin/recording", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs/pictures/up.svg", metavar="FILE")
    output = parser.parse_args().output
    with lab_machine() as home:
        printed = recorded(home)
    shown = list(screens(printed))
    output.write_text(animation(shown, COLUMNS, ROWS, TITLE))
    print(f"{output}: {len(shown)} screens, {output.stat().st_size / 1000:.0f} kB")


@contextmanager
def lab_machine() -> Iterator[Path]:
    """A home folder from which HOST is a bare machine, and in it a fleet with the lab's hub; gone after it."""
    words: list[str | Path] = [RIGUP, "lab", "up", "--name", LAB, "--json"]
    try:
        (lab,) = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)["labs"]
        home = Path(tempfile.mkdtemp(prefix="recording-"))
        (home / ".ssh").mkdir()
        config = Path(lab["ssh_config"]).read_text().replace(f"Host {LAB}1", f"Host {HOST}")
        (home / ".ssh/config").write_text(config)
        (home / "fleet/group_data").mkdir(parents=True)
        (home / "fleet/group_data/all.py").write_text('hub = "http://hub:8090"\nbuilder = "controller"\n')
        yield home
        shutil.rmtree(home)
    finally:
        subprocess.run([RIGUP, "lab", "down", LAB], check=True)


def recorded(home: Path) -> Printed:
    """What a shell printed while somebody typed the command and its confirmation: seconds and bytes."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    variables = {
        "PATH": f"{RIGUP.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CACHE_HOME": cache,
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "PS1": PROMPT,
    }
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(home / "fleet")
        os.execvpe("bash", ["bash", "--norc", "--noprofile"], variables)  # noqa: S606, S607  a shell for one command
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    printed: Printed = []
    wait_to_say(terminal, printed, PROMPT)
    for letter in COMMAND:
        os.write(terminal, letter.encode())
        wait_to_say(terminal, printed, letter)
        time.sleep(0.03)
    os.write(terminal, b"\n")
    wait_to_say(terminal, printed, QUESTION)
    time.sleep(LONGEST_PAUSE)
    os.write(terminal, b"y\n")
    wait_to_say(terminal, printed, f"\n{PROMPT}", f"2004h{PROMPT}")
    os.write(terminal, b"exit\n")
    os.waitpid(process, 0)
    return printed


def wait_to_say(terminal: int, printed: Printed, *endings: str) -> None:
    """Keeps what is printed until it has ended in one of these words (or has had them, for a question)."""
    heard, deadline = "", time.monotonic() + SECONDS
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while not any(ending in heard for ending in endings):
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            sys.exit(f"bin/recording: the shell has not said {endings[0]!r} within {SECONDS} s:\n{heard[-2000:]}")
        content = os.read(terminal, 65536)
        printed.append((time.monotonic(), content))
        heard += decoder.decode(content)


def screens(printed: Printed) -> Iterator[Screen]:
    """The screens that a terminal shows, without those that come too fast to be seen, and with pauses cut."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    now, before, shown, stood = 0.0, printed[0][0], -LONGEST_PAUSE, 0.0
    lines: tuple[Line, ...] = ()
    outline = ""
    for number, (when, content) in enumerate(printed):
        step, before = min(when - before, LONGEST_PAUSE), when
        stream.feed(content)
        stood = stood + step if outline == (outline := CLOCKS.sub("", "\n".join(screen.display))) else 0.0
        if stood > LONGEST_PAUSE:
            continue
        now += step
        pause = printed[number + 1][0] - when if number + 1 < len(printed) else LONGEST_PAUSE
        found = tuple(line_of(screen, row) for row in range(ROWS))
        if found != lines and (pause >= SHORTEST_SCREEN or now - shown >= SHORTEST_SCREEN):
            shown, lines = now, found
            yield Screen(now, found)


def line_of(screen: pyte.Screen, row: int) -> Line:
    """One line of a screen, by runs of cells that look alike; without spaces at their ends."""
    cells = [(column, screen.buffer[row][column]) for column in range(screen.columns)]
    found: list[Words] = []
    for (colour, bold), run in groupby(cells, lambda cell: (cell[1].fg, cell[1].bold)):
        part = list(run)
        text = "".join(cell.data for _, cell in part)
        if text.strip():
            start = part[0][0] + len(text) - len(text.lstrip())
            found.append(Words(start, text.strip(), colour, bold))
    return tuple(found)


if __name__ == "__main__":
    main()
