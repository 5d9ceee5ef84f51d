"""A Chromium controlled by the DevTools protocol over two pipes: JSON messages that end with NUL.

The browser reads from its file descriptor 3 and writes to 4.
"""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One browser with one tab; use it as a context manager."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM is not None
        from_us, self._write = os.pipe()
        self._read, to_us = os.pipe()
        # A shell can assign a pipe to a descriptor with a given number.
        script = f'exec "$@" 3<&{from_us} 4>&{to_us}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "browser", PROGRAM, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(from_us, to_us),
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        self._sent = 0
        self._buffer = b""
        self._session = ""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._write)  # the browser ends when its pipe does
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def send(self, method: str, **params: object) -> dict[str, Any]:
        """Send a command and return its result; events received meanwhile are dropped."""
        self._sent += 1
        message: dict[str, object] = {"id": self._sent, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 16)
            assert part, "the browser ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        done = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def open(self, file: Path) -> None:
        self.send("Page.navigate", url=file.as_uri())
        self.until(f"document.readyState === 'complete' && location.href === '{file.as_uri()}'")

    def until(self, condition: str) -> None:
        """Wait for a condition in the page."""
        end = time.monotonic() + 20
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def resize(self, width: int, height: int = 900, scale: int = 1) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def boxes(self, selector: str) -> list[dict[str, float]]:
        """Return the rectangles of all visible elements that match."""
        every = f"[...document.querySelectorAll({selector!r})]"
        visible = f"{every}.filter((element) => element.checkVisibility())"
        return list(self.run(f"{visible}.map((e) => e.getBoundingClientRect().toJSON())"))

    def press(self, key: str) -> None:
        text = {"Enter": "\r"}.get(key, "")
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def point(self, x: float, y: float, *, click: bool = False) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.send(
                    "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
                )
