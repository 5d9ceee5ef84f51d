"""Requests that the server must refuse, each with a status and a message."""

import asyncio
import io
import json
import socket
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from PIL import Image

from .serving import LIMITS, TOKEN, Serving

HTML = '<img src=x onerror="alert(1)">\x1b[31m'
OWN = {"Authorization": f"Bearer {TOKEN}"}


def request(method: str, path: str, **headers: str) -> bytes:
    """Return a request without a body, exactly as written."""
    lines = [f"{method} {path} HTTP/1.1", "Connection: close"]
    given = {"Host": "127.0.0.1", **OWN} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines += [f"{name}: {value}" for name, value in given.items() if value]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def send(serving: Serving, content: bytes, seconds: float = 5.0) -> bytes:
    """Send bytes and return the answer; empty if the server closes the connection."""
    with socket.create_connection(("127.0.0.1", serving.port), timeout=seconds) as connection:
        answer = b""
        try:
            connection.sendall(content)
            while part := connection.recv(65536):
                answer += part
        except ConnectionError:
            pass
        return answer


COOKIE = {"Authorization": ""}
FLOOD = {f"X-{number}": "a" * 500 for number in range(60)}
POST, JSON = "/api/runs/x/inspect", {"Content-Type": "application/json"}
# name -> request, and the status of the answer
ATTACKS: dict[str, tuple[bytes, int]] = {
    "foreign host": (request("GET", "/api/runs", Host="evil.example"), 400),
    "host that only starts well": (request("GET", "/", Host="127.0.0.1.evil.example"), 400),
    "host with user": (request("GET", "/", Host="localhost@evil.example"), 400),
    "no host": (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", 400),
    "no token": (request("GET", "/api/runs", Authorization=""), 401),
    "wrong token": (request("GET", "/api/runs", Authorization="Bearer wrong"), 401),
    "token with other case": (
        request("GET", "/api/runs", Authorization=f"Bearer {TOKEN.upper()}"),
        401,
    ),
    "basic authentication": (request("GET", "/api/runs", Authorization="Basic YTpi"), 401),
    "token in the query of the API": (
        request("GET", f"/api/runs?token={TOKEN}", Authorization=""),
        401,
    ),
    "wrong token in the link": (request("GET", "/?token=wrong", Authorization=""), 401),
    "empty cookie": (request("GET", "/", Cookie="harken-0=", **COOKIE), 401),
    "static files without token": (request("GET", "/static/app.js", Authorization=""), 401),
    "foreign origin": (request("POST", POST, Origin="http://evil.example"), 403),
    "null origin": (request("POST", POST, Origin="null"), 403),
    "origin of another port": (request("POST", POST, Origin="http://127.0.0.1:1"), 403),
    "cross-site fetch": (request("POST", POST, Sec_Fetch_Site="cross-site"), 403),
    "same-site fetch": (request("POST", POST, Sec_Fetch_Site="same-site"), 403),
    "cross-site read": (request("GET", "/api/runs", Sec_Fetch_Site="cross-site"), 403),
    "form without origin": (request("POST", POST, Cookie=f"harken-0={TOKEN}", **COOKIE), 403),
    "form type": (request("POST", POST, Content_Type="application/x-www-form-urlencoded"), 404),
    "announced size": (request("POST", POST, Content_Length="10000000000", **JSON), 413),
    "negative size": (request("POST", POST, Content_Length="-1"), 400),
    "body of a GET": (request("GET", "/api/runs", Content_Length="7") + b'{"a":1}', 413),
    "header flood": (request("GET", "/", **FLOOD), 431),
    "long address": (request("GET", "/" + "a" * 40_000), 431),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
    "method": (request("DELETE", "/api/runs"), 405),
    "unknown path": (request("GET", "/etc/passwd"), 404),
    "path traversal": (request("GET", "/static/../../../../etc/passwd"), 404),
    "encoded path traversal": (request("GET", "/static/%2e%2e/%2e%2e/server.py"), 404),
    "encoded slashes": (request("GET", "/static/..%2f..%2fserver.py"), 404),
    "backslashes": (request("GET", "/static/..\\..\\server.py"), 404),
    "zero byte": (request("GET", "/static/a%00.js"), 404),
    "path as run": (request("GET", "/api/runs/..%2f..%2fetc"), 404),
    "HTML as run": (request("GET", "/api/runs/%3Cscript%3E"), 404),
    "guessed inspection": (request("GET", "/api/inspections/AAAAAAAAAAAA"), 410),
    "guessed upload": (request("GET", "/api/media/..%2f..%2fpasswd"), 404),
    "web socket": (
        request(
            "GET",
            "/socket",
            Upgrade="websocket",
            Connection="Upgrade",
            Sec_WebSocket_Version="13",
            Sec_WebSocket_Key="x",
        ),
        404,
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_refused(serving: Serving, name: str) -> None:
    content, status = ATTACKS[name]
    answer = send(serving, content)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:300]
    assert TOKEN.encode() not in answer
    if b"application/json" in head:
        error = json.loads(body)["error"]
        assert error["message"] and error["type"] and error["fix"]


def wav(seconds: float, rate: int = 8000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(rate)
        sound.writeframes(b"\x80" * int(seconds * rate))
    return file.getvalue()


def ten_hours() -> bytes:
    """Return a short file whose header announces ten hours."""
    content = bytearray(wav(0.1))
    content[40:44] = (36_000 * 8000).to_bytes(4, "little")
    return bytes(content)


def bomb() -> bytes:
    """Return a PNG of 20,000 x 20,000 pixels in a few kilobytes."""
    file = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(file, "PNG", optimize=True)
    return file.getvalue()


# task, body, type, status
BODIES: dict[str, tuple[str, Callable[[], bytes], str, int]] = {
    "no JSON": ("lm", lambda: b"{", "application/json", 400),
    "nested JSON": ("lm", lambda: b"[" * 4000, "application/json", 400),
    "array": ("lm", lambda: b"[]", "application/json", 400),
    "unknown field": (
        "lm",
        lambda: b'{"text": "a", "path": "/etc/passwd"}',
        "application/json",
        400,
    ),
    "nothing": ("lm", lambda: b"{}", "application/json", 400),
    "number as text": ("lm", lambda: b'{"text": 7}', "application/json", 400),
    "half a character": ("lm", lambda: b'{"text": "\\ud800"}', "application/json", 400),
    "long text": ("lm", lambda: json.dumps({"text": "a" * 1010}).encode(), "application/json", 413),
    "large JSON": ("lm", lambda: b" " * 4097, "application/json", 413),
    "huge n-best": ("lm", lambda: b'{"text": "a", "nbest": 1000000}', "application/json", 400),
    "boolean": ("lm", lambda: b'{"text": "a", "nbest": true}', "application/json", 400),
    "unknown head": (
        "lm",
        lambda: b'{"text": "a", "disabled": ["L99.H1"]}',
        "application/json",
        400,
    ),
    "no head": ("lm", lambda: b'{"text": "a", "disabled": ["1"]}', "application/json", 400),
    "path as media": ("transcribe", lambda: b'{"media": "/etc/passwd"}', "application/json", 404),
    "text as path": ("transcribe", lambda: b'{"text": "/etc/passwd"}', "application/json", 400),
    "text as stdin": ("transcribe", lambda: b'{"text": "-"}', "application/json", 400),
    "example": ("lm", lambda: b'{"example": 1000000}', "application/json", 404),
    "HTML": ("lm", lambda: HTML.encode(), "text/html", 415),
    "no sound": ("transcribe", lambda: HTML.encode(), "audio/wav", 422),
    "empty sound": ("transcribe", lambda: b"", "audio/wav", 400),
    "10-hour sound": ("transcribe", ten_hours, "audio/wav", 422),
    "decompression bomb": ("caption", bomb, "image/png", 422),
    "picture for speech": ("transcribe", lambda: b"\x89PNG\r\n\x1a\n", "image/png", 422),
    "picture for text": ("lm", lambda: b"\x89PNG\r\n\x1a\n", "image/png", 400),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_are_refused(serving: Serving, name: str) -> None:
    task, body, kind, status = BODIES[name]
    path = f"/api/runs/{serving.run_id(task)}/inspect"
    answer = serving.client.post(path, content=body(), headers={"Content-Type": kind})
    assert answer.status_code == status, answer.text
    message = answer.json()["error"]["message"]
    assert message and "/tmp" not in answer.text
    assert answer.headers["content-type"] == "application/json"
    assert "script-src" not in answer.headers["content-security-policy"]


def test_chunked_bodies_are_counted_as_they_arrive(serving: Serving) -> None:
    path = f"/api/runs/{serving.run_id('transcribe')}/inspect"
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"a" * 1000

    try:
        answer = serving.client.post(path, content=endless(), headers={"Content-Type": "audio/wav"})
        assert answer.status_code == 413
    except httpx.HTTPError:
        pass  # the server closed the connection while the client was sending
    assert sent < 100 * LIMITS.upload_bytes / 1000


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_slow_headers_are_cut_off(serving: Serving, start: bytes) -> None:
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as connection:
        connection.sendall(start)
        assert connection.recv(1000) == b""
    assert LIMITS.header_seconds / 2 < time.monotonic() - begun < 15


def test_slow_bodies_are_cut_off(serving: Serving) -> None:
    path = f"/api/runs/{serving.run_id('lm')}/inspect"
    answer = send(serving, request("POST", path, Content_Length="100", **JSON) + b'{"text"', 20)
    assert answer.startswith(b"HTTP/1.1 408")


def test_hanging_clients_do_not_keep_their_places(serving: Serving) -> None:
    hanging = [
        socket.create_connection(("127.0.0.1", serving.port)) for _ in range(LIMITS.connections + 9)
    ]
    time.sleep(3 * LIMITS.header_seconds)
    for connection in hanging:
        connection.close()
    assert serving.client.get("/api/runs").status_code == 200


def test_the_link_sets_a_cookie_that_only_the_page_can_use(serving: Serving) -> None:
    with httpx.Client(base_url=serving.base) as browser:
        answer = browser.get(f"/?token={TOKEN}&run=a%20b")
        assert answer.status_code == 303 and answer.headers["location"] == "/?run=a+b"
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert browser.get("/api/runs").status_code == 200
        path = f"/api/runs/{serving.run_id('lm')}/inspect"
        fields = {"text": "they duck"}
        assert browser.post(path, json=fields).status_code == 403
        assert browser.post(path, json=fields, headers={"Origin": serving.base}).status_code == 200
        site = {"Sec-Fetch-Site": "same-origin"}
        assert browser.post(path, json=fields, headers=site).status_code == 200


def test_answers_name_no_path(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = serving.client.get("/api/runs").text
    assert str(tmp_path_factory.getbasetemp()) not in text
    assert len(serving.client.get("/api/runs").json()["runs"]) == 4


def test_streams_are_limited_and_released(serving: Serving) -> None:
    path = f"/api/runs/{serving.run_id('lm')}/curves/events"
    with ExitStack() as stack:
        streams = [serving.client.stream("GET", path) for _ in range(LIMITS.streams)]
        lines = [stack.enter_context(stream).iter_lines() for stream in streams]
        assert {next(answer) for answer in lines} == {"event: state"}
        refused = serving.client.get(path)
        assert refused.status_code == 503 and "retry-after" in refused.headers
    wait_until(lambda: serving.state.streams == 0)


def test_a_disconnected_client_leaves_the_queue(serving: Serving) -> None:
    release = threading.Event()
    blocking = serving.state.models.run(lambda job: release.wait(30))
    blocked = asyncio.run_coroutine_threadsafe(blocking, serving.loop)
    body = json.dumps({"text": "they"}).encode()
    path = f"/api/runs/{serving.run_id('lm')}/inspect"
    content = request("POST", path, Content_Length=str(len(body)), **JSON) + body
    try:
        with socket.create_connection(("127.0.0.1", serving.port)) as connection:
            connection.sendall(content)
            wait_until(lambda: serving.state.models.waiting == 1)
        wait_until(lambda: serving.state.models.waiting == 0)
    finally:
        release.set()
        blocked.result(30)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    script = "import sys; sys.modules['uvicorn'] = None; from harken.cli.main import main; "
    script += "sys.exit(main(['serve', sys.argv[1]]))"
    command = [sys.executable, "-c", script, str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 2
    assert "'uvicorn' is not installed" in finished.stderr
    assert 'pip install "harken[serve]"' in finished.stderr


def run_command(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "harken", "serve", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_other_hosts_need_a_token(tmp_path: Path) -> None:
    refused = run_command(str(tmp_path), "--host", "0.0.0.0")
    assert refused.returncode == 2 and "--token" in refused.stderr
    short = run_command(str(tmp_path), "--token", "short")
    assert short.returncode == 2 and "16" in short.stderr
    missing = run_command(str(tmp_path / "missing"))
    assert missing.returncode == 2 and "not found" in missing.stderr


def test_sigterm_ends_the_command_and_no_text_is_logged(serving: Serving, tmp_path: Path) -> None:
    folder = serving.state.library._paths[0]
    command = [sys.executable, "-m", "harken", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        link = httpx.URL(process.stdout.readline().strip())
        headers = {"Authorization": f"Bearer {link.params['token']}"}
        path = f"/api/runs/{serving.run_id('lm')}/inspect"
        answer = httpx.post(
            link.copy_with(path=path, query=None),
            headers=headers,
            json={"text": "hidden word"},
            timeout=60,
        )
        assert answer.status_code == 200
        process.terminate()
        assert process.wait(timeout=30) in (0, -15)
        assert "hidden" not in process.stderr.read()
