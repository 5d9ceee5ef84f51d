"""A server of untrained runs and a browser that reaches only this machine."""

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
TOKEN = "token-of-the-browser-tests"
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
]  # fmt: skip


class Server:
    """The address of a server, and its API."""

    def __init__(self, link: str) -> None:
        self.link = link
        self.origin = link.partition("/?")[0]
        self.runs = {run["name"]: run for run in self.get("/api/runs")["runs"]}

    def request(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.origin + path, data, headers)
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.headers, response.read()

    def get(self, path: str) -> Any:
        return json.loads(self.request(path)[1])

    def inspect(self, run: str, **body: object) -> Any:
        return json.loads(self.request(f"/api/runs/{self.runs[run]['id']}/inspect", body)[1])

    def weights(self, inspection: str, layer: str, head: int) -> NDArray[np.float32]:
        headers, body = self.request(f"/api/inspections/{inspection}/weights/{layer}/{head}")
        shape = int(headers["X-Rows"]), int(headers["X-Columns"])
        return np.frombuffer(body, "<f4").reshape(shape)

    def address(self, page: str, run: str, state: str = "") -> str:
        """Return the address of a view that shows a run."""
        return f"{self.link}#/{page}?run={self.runs[run]['id']}{state}"


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "harken", "serve", folder, "--port", "0", "--token", TOKEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(process.stdout.readline().strip())
        finally:
            process.terminate()
