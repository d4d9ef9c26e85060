"""A headless Chromium that opens one page: over a pipe, in the DevTools protocol. No library is needed for that.

It stands for the reader of a page: at a width, in a colour scheme, on paper. --no-sandbox, since tests may run as root.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = "chromium"
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--remote-debugging-pipe",
)
SECONDS = 60


def installed() -> bool:
    """Whether there is a Chromium."""
    return shutil.which(PROGRAM) is not None


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with an empty tab and a profile of its own; both are gone after it."""
    profile = tempfile.mkdtemp(prefix="chromium")
    (to_read, to_write), (from_read, from_write) = os.pipe(), os.pipe()

    def as_3_and_4() -> None:
        # over descriptors above both, so that neither takes the other's place
        read, write = os.dup(to_read), os.dup(from_write)
        os.dup2(read, 3)
        os.dup2(write, 4)

    process = subprocess.Popen(
        [PROGRAM, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
        preexec_fn=as_3_and_4,
        close_fds=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        with os.fdopen(to_write, "wb", buffering=0) as out, os.fdopen(from_read, "rb", buffering=0) as back:
            made = Browser(out, back)
            yield made
            made.close()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(profile, ignore_errors=True)


class Browser:
    """One tab. events: what it has said by itself, as (method, parameters)."""

    def __init__(self, out: Any, back: Any) -> None:
        self._out, self._back, self._heard, self._number = out, back, b"", 0
        self.events: list[tuple[str, dict[str, Any]]] = []
        targets = self._call("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session: str | None = None
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, width: int = 1280, dark: bool = False) -> None:
        """Opens a file at this width (below 600 as a phone) and in this colour scheme, and waits until it is drawn."""
        self.events.clear()
        phone = width < 600
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=844 if phone else 800,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=path.resolve().as_uri())
        self._wait_for("Page.loadEventFired")
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def value(self, expression: str) -> Any:
        """What an expression is in the page; the DevTools may ask although the page itself may run no script."""
        said = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def requests(self) -> list[str]:
        """The addresses that were asked for since the page was opened."""
        return [said["request"]["url"] for name, said in self.events if name == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """What the console has, and what the page failed with."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(said) for name, said in self.events if name in kinds]

    def press(self, key: str) -> None:
        """Presses and releases a key, such as "Tab" or "Enter"."""
        codes = {"Tab": 9, "Enter": 13}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text)

    def picture(self, height: int, element: str = "document.documentElement") -> bytes:
        """A PNG of the page, or of the element that an expression finds, at most so high from its top."""
        box = f"(b => [b.x + scrollX, b.y + scrollY, b.width, b.height])({element}.getBoundingClientRect())"
        x, y, width, whole = self.value(box)
        clip = {"x": x, "y": y, "width": width, "height": min(whole, height), "scale": 1}
        said = self._call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(said["data"])

    def paper(self) -> bytes:
        """A PDF of the page on A4."""
        said = self._call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        return base64.b64decode(said["data"])

    def close(self) -> None:
        """Ends the browser."""
        self._session = None
        self._call("Browser.close")

    def _wait_for(self, name: str) -> None:
        while not any(said == name for said, _ in self.events):
            self._read()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        words = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            words["sessionId"] = self._session
        self._out.write(json.dumps(words).encode() + b"\0")
        while True:
            said = self._read()
            if said.get("id") == self._number:
                assert "error" not in said, said
                found: dict[str, Any] = said["result"]
                return found

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._heard:
            ready, _, _ = select.select([self._back], [], [], SECONDS)
            assert ready, f"Chromium has said nothing for {SECONDS} s"
            more = self._back.read(1 << 20)
            assert more, "Chromium has ended"
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\0")
        said: dict[str, Any] = json.loads(line)
        if "method" in said:
            self.events.append((said["method"], said.get("params", {})))
        return said
