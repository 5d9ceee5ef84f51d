"""A server on a free port of this machine, in a thread."""

import asyncio
import threading
import time
from pathlib import Path

import httpx

from harken.serve.server import bind, make_server
from harken.serve.settings import Limits, ServerSettings

TOKEN = "a-token-of-the-tests-0123456789"
LIMITS = Limits(
    json_bytes=4096,
    upload_bytes=50_000,
    text_characters=1009,
    body_seconds=0.5,
    header_seconds=0.5,
    connections=29,
    streams=3,
    queue=5,
    inspections=7,
)


class Serving:
    """A running server, its address and a client with the token."""

    def __init__(self, paths: list[Path], limits: Limits = LIMITS) -> None:
        settings = ServerSettings(paths=paths, port=0, token=TOKEN, limits=limits)
        self.socket = bind(settings)
        self.port = self.socket.getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        self.server = make_server(settings)
        self.state = self.server._state
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.client = httpx.Client(base_url=self.base, headers=headers, timeout=60)

    def run(self) -> None:
        """Run the server in a loop that tests can submit to."""
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.server.serve([self.socket]))
        self.loop.close()

    def run_id(self, task: str) -> str:
        runs = self.client.get("/api/runs").json()["runs"]
        return next(str(run["id"]) for run in runs if run["task"] == task)

    def inspect(self, task: str, **fields: object) -> dict[str, object]:
        answer = self.client.post(f"/api/runs/{self.run_id(task)}/inspect", json=fields)
        assert answer.status_code == 200, answer.text
        record: dict[str, object] = answer.json()
        return record

    def stop(self) -> None:
        self.client.close()
        self.server.handle_exit(15, None)
        self.thread.join(timeout=30)
        self.socket.close()
