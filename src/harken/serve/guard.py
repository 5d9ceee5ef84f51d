"""Middleware that checks every request before the application sees it.

    Host               one of the allowed names, so a foreign name that resolves to this machine
                       (DNS rebinding) is refused
    token              cookie or `Authorization: Bearer`
    Origin             of a POST: the server itself, so another site cannot send requests
    body               bytes are counted as they arrive, and must arrive in time

Exceptions become JSON answers. Only the type and place of an unexpected exception are logged,
because its message may quote the user's text.
"""

import asyncio
import hashlib
import secrets
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harken.serve.errors import ApiError, api_error
from harken.serve.settings import ServerSettings

OPEN_PATHS = ("/healthz",)  # without a token
CONTENT_SECURITY = (
    "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware with the checks of this module."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        answers: Counter[int],
        log: Callable[[str], object] = sys.stderr.write,
    ) -> None:
        """Count the answers by status in `answers`."""
        self._app, self._settings, self._log = app, settings, log
        self._answers = answers
        self._token_digest = _digest(settings.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; other protocols than HTTP are refused."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        started = False

        async def guarded_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._answers[message["status"]] += 1
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
                if message["status"] >= 400 and scope["method"] == "POST":
                    headers["Connection"] = "close"  # the client may still send a body
            await asyncio.wait_for(send(message), self._settings.limits.write_seconds)

        try:
            response = self._check(scope)
            guarded_receive = self._limited(scope, receive)
            if response is None:
                await self._app(scope, guarded_receive, guarded_send)
            else:
                await response(scope, receive, guarded_send)
        except Exception as error:
            answer = api_error(error)
            if answer.status == 500:
                self._log(f"harken: {describe(error)}\n")
            if not started:
                await answer.response()(scope, receive, guarded_send)

    def _check(self, scope: Scope) -> Response | None:
        """Raise `ApiError` for a refused request; return a redirect for a link with a token."""
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) for name, value in scope["headers"])
        if size > self._settings.limits.header_bytes:
            raise ApiError(431, "address and headers are too large", fix="send less")
        hosts = headers.getlist("host")
        if len(hosts) != 1 or host_name(hosts[0]) not in self._settings.allowed_hosts:
            raise ApiError(
                400,
                "the Host header does not name this server",
                fix="open the address that `harken serve` printed",
                kind="invalid_host",
            )
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        own = origin in (f"http://{hosts[0]}", f"https://{hosts[0]}")
        if method == "POST" and (
            (origin is not None and not own) or site not in (None, "same-origin")
        ):
            raise _foreign()
        if (
            site is not None
            and site not in ("same-origin", "none")
            and path not in ("/", *OPEN_PATHS)
        ):
            raise _foreign()
        if path in OPEN_PATHS:
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if method == "GET" and path == "/" and given is not None and self._is_token(given):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            redirect = RedirectResponse(f"/?{rest}" if rest else "/", 303)
            redirect.set_cookie(
                self._settings.cookie, self._settings.token, httponly=True, samesite="strict"
            )
            return redirect
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(bearer.strip()):
            return None
        cookies = cookie_parser(headers.get("cookie", ""))
        if not self._is_token(cookies.get(self._settings.cookie, "")):
            fix = "open the link that `harken serve` printed, or send Authorization: Bearer TOKEN"
            raise ApiError(401, "the request has no valid token", fix=fix)
        if method == "POST" and not own and site is None:
            raise _foreign()
        return None

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(_digest(text), self._token_digest)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` that counts the bytes of the body and has a deadline."""
        limits, headers = self._settings.limits, Headers(scope=scope)
        is_json = headers.get("content-type", "").startswith("application/json")
        limit = limits.json_bytes if is_json else limits.upload_bytes
        if scope["method"] in ("GET", "HEAD"):
            limit = 0
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced[:20]) > limit:
            raise _too_large(limit)
        loop = asyncio.get_running_loop()
        received, is_complete, deadline = 0, False, loop.time() + limits.body_seconds

        async def limited() -> Message:
            nonlocal received, is_complete
            if is_complete:  # the next message is the end of the connection
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, deadline - loop.time()))
            except TimeoutError:
                fix = "send it faster, or send less"
                raise ApiError(408, "the body did not arrive in time", fix=fix) from None
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            is_complete = not message.get("more_body", False)
            return message

        return limited


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    name, colon, port = host.rpartition(":")
    is_port = colon and port.isdecimal() and not host.endswith("]")
    return (name if is_port else host).lower().removeprefix("[").removesuffix("]")


def describe(error: BaseException) -> str:
    """Return the type and place of an exception, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _foreign() -> ApiError:
    fix = "send the request from the page itself, or with Authorization: Bearer TOKEN"
    return ApiError(403, "the request comes from another site", fix=fix)


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the body has more than {limit:,} bytes", fix="send less")
