"""The checks before every route: headers, who asks, how often and how much, and the page's own head in its HTML.

It is one piece of ASGI around the whole application, Gradio's routes included, so no route can be forgotten. It is
written by hand: Starlette's own middlewares for sessions and hosts answer none of these questions, and what is built on
its ``BaseHTTPMiddleware`` puts every stream of live events through another queue.
"""

from __future__ import annotations

import html
import secrets
from collections.abc import Callable
from urllib.parse import quote

from fastapi import HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .hosts import Hosts, is_foreign
from .http import COOKIE, MAX_BODY, OWNER, browser_id, cookie, refusal
from .limits import Rules, Window, caller
from .store import NOBODY
from .users import Users

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; worker-src 'self' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
LOCKED_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "same-origin"}
STRICT = {  # of a server that others use
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "x-robots-tag": "noindex",
}
SESSION = "specviz_session"
LOGIN, LOGOUT, UPLOAD = "/login", "/logout", "/gradio_api/upload"
MAX_LOGIN = 4096  # bytes
CORS = b"access-control-"  # Gradio's answers let pages of other origins in, cookies and all
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>specviz</title><body style="font:16px/1.5 system-ui,sans-serif;max-width:38em;margin:12vh auto;padding:0 1em">
<p>{}</p></body></html>"""


class GuardRefusal(HTTPException):
    """A request that goes no further: what is said, and after how many seconds it may come again."""

    def __init__(self, status: int, text: str, wait_s: float = 0.0) -> None:
        super().__init__(status, text)
        self.retry_s = int(wait_s) + 1 if wait_s else 0


class Guard:
    """Security headers on every answer; a cookie that tells browsers apart, or a session that tells users apart.

    Nothing goes further that was sent to another host, or by a page of another origin. Its paths are the scope's: a
    request's ``url`` is made of its Host. ``dress`` puts our head into the HTML of the page.
    """

    def __init__(
        self, app: ASGIApp, rules: Rules, users: Users | None = None, dress: Callable[[str], str] = str,
        hosts: Hosts | None = None,
    ) -> None:  # fmt: skip
        self.app, self.rules, self.users, self.dress, self.hosts = app, rules, users, dress, hosts or Hosts()
        self.asks, self.uploads = Window(rules.asks), Window(rules.runs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there is none here
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        path, writes = scope["path"], request.method not in ("GET", "HEAD", "OPTIONS")
        send = self._with_headers(send, request)
        if problem := self._elsewhere(request):
            await _response(problem, request)(scope, receive, send)
            return
        try:
            caller.set(self._admit(request, writes))
            max_bytes = MAX_LOGIN if path == LOGIN else self.rules.upload_bytes + 65536 if path == UPLOAD else MAX_BODY
            if writes:
                length = request.headers.get("content-length", "")
                if length.isdecimal() and int(length) > max_bytes:
                    raise _too_large(max_bytes)
                receive = _bound(receive, max_bytes)
        except GuardRefusal as problem:
            to_login = problem.status_code == 401 and path == "/" and request.method == "GET"
            await (_login(request) if to_login else refusal(problem))(scope, receive, send)
            return
        await self.app(scope, receive, self._page(send, request) if path == "/" and request.method == "GET" else send)

    def _elsewhere(self, request: Request) -> GuardRefusal | None:
        """The reason why a request is not for this server, or not from its own page; a link to a page of it may be
        anywhere.
        """
        path, headers = request.scope["path"], request.headers
        if not path.startswith("/"):  # the absolute form, which names a host of its own
            return GuardRefusal(400, "What is asked for is a path, which begins with “/”.")
        if text := self.hosts.refusal(headers):
            return GuardRefusal(403 if len(headers.getlist("host")) == 1 else 400, text)
        link = (
            request.method in ("GET", "HEAD")
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") in ("document", "iframe" if self.hosts.framed_by else "document")
            and not path.startswith("/gradio_api/")
        )
        if not link and is_foreign(headers, request.scope["scheme"]):
            return GuardRefusal(
                403, "This was sent by a page of another site or port: open specviz itself and try again."
            )
        return None

    def _admit(self, request: Request, writes: bool) -> str:
        """The user whose limits count for a request; its owner is in its scope from here on where no cookie names it.
        Raises Refusal.
        """
        path, headers = request.scope["path"], request.headers
        address = request.client.host if request.client else ""
        client = address
        if self.users is not None:
            if path == LOGIN:  # tries are counted there
                return address
            name = self.users.who(request.cookies.get(SESSION, "")[:100])
            if not name:
                raise GuardRefusal(401, "You are not signed in, or no longer: load the page again and sign in.")
            client = request.scope[OWNER] = f"user:{name}"  # a colon: no browser's id can be that
        elif not self.rules.is_shared:
            client = browser_id(headers.get("cookie")) or address
        elif not browser_id(headers.get("cookie")):
            request.scope[OWNER] = f"{NOBODY}{secrets.token_hex(16)}"
        if writes and path != LOGOUT and (wait := self.asks.take(client)):
            text = f"More than {self.asks.limit} requests came from you in a minute: wait {span(wait)} and try again."
            raise GuardRefusal(429, text, wait)
        if writes and path == UPLOAD and (wait := self.uploads.take(client)):
            text = f"You sent {self.uploads.limit} files within a minute, which is the most: wait {span(wait)}."
            raise GuardRefusal(429, text, wait)
        kind = headers.get("content-type", "").partition(";")[0].strip()
        if writes and path.startswith("/api/") and kind != "application/json":  # another site's form cannot send that
            raise GuardRefusal(422, "What is asked is sent as JSON.")
        return client

    def _with_headers(self, send: Send, request: Request) -> Send:
        is_login = self.users is not None and request.scope["path"] == LOGIN
        policy = POLICY + "".join(f" {origin}" for origin in self.hosts.framed_by)
        extra_headers = HEADERS | {"content-security-policy": LOCKED_POLICY if is_login else policy}
        extra_headers |= STRICT if self.rules.is_shared else {}
        named_by_content = request.scope["path"].startswith("/assets/") and request.method == "GET"  # Gradio's scripts

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    header for header in message.get("headers", ()) if not header[0].lower().startswith(CORS)
                ]
                headers = MutableHeaders(scope=message)
                headers.update(extra_headers)
                if named_by_content and message["status"] == 200:
                    headers["cache-control"] = "public, max-age=31536000, immutable"
            await send(message)

        return send_guarded

    def _page(self, send: Send, request: Request) -> Send:
        """The page's HTML with our head, and a cookie for a browser that has none."""
        start: Message = {}
        body = b""

        async def send_page(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            if message["type"] != "http.response.body":
                await send(message)
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            whole = self.dress(body.decode("utf-8", "replace")).encode()
            headers = MutableHeaders(scope=start)
            headers["cache-control"], headers["content-length"] = "no-cache", str(len(whole))
            if self.users is None and not browser_id(request.headers.get("cookie")):
                in_frame = bool(self.hosts.framed_by)
                headers.append("set-cookie", cookie(COOKIE, secrets.token_hex(16), 31536000, in_frame=in_frame))
            await send(start)
            await send({"type": "http.response.body", "body": whole})

        return send_page


def _login(request: Request) -> Response:
    """The way to the login page, for somebody who looks at the page."""
    query = request.scope["query_string"].decode("latin-1")
    return RedirectResponse("login" + (f"?next={quote('?' + query, safe='')}" if query else ""), 303)


def _response(problem: GuardRefusal, request: Request) -> Response:
    """A refusal: a page for whoever looks at one, JSON for everything else."""
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(PAGE.format(html.escape(problem.detail)), problem.status_code)
    return refusal(problem)


def _bound(receive: Receive, max_bytes: int) -> Receive:
    """A body of unknown length, cut off where it grows too large."""
    size = 0

    async def count() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > max_bytes:
            raise _too_large(max_bytes)
        return message

    return count


def _too_large(max_bytes: int) -> GuardRefusal:
    size_text = f"{max_bytes >> 20} MiB" if max_bytes >> 20 else f"{max_bytes >> 10} KiB"
    return GuardRefusal(413, f"More than {size_text} were sent, and no more are taken here: send less.")


def span(seconds: float) -> str:
    """A waiting time in words."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"
