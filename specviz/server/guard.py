"""What stands before every route: headers, who asks, how often and how much, and the page's own head in its HTML.

It is one piece of ASGI around the whole application, Gradio's routes included, so no route can be forgotten.
"""

from __future__ import annotations

import asyncio
import html
import json
import secrets
from http.cookies import CookieError, SimpleCookie
from string import Template
from urllib.parse import parse_qs, quote

from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specviz import shell as ui
from specviz.shell.assets import HERE

from .desk import Desk
from .http import COOKIE, MAX_ASKED, OWNER, browser_id
from .limits import Window, caller
from .users import Users

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; worker-src 'self' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
LOCKED = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "content-security-policy": POLICY,
}
STRICT = {  # of a server that others use
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "x-robots-tag": "noindex",
}
SESSION = "specviz_session"
MAX_LOGIN = 4096  # bytes
UPLOAD = "/gradio_api/upload"


class _TooLarge(Exception):
    pass


class Guard:
    """Security headers on every answer; a cookie that tells browsers apart, or a session that tells users apart."""

    def __init__(self, app: ASGIApp, desk: Desk, users: Users | None = None) -> None:
        self.app, self.desk, self.users = app, desk, users
        self.asks, self.uploads = Window(desk.rules.asks), Window(desk.rules.runs)
        self.signing = asyncio.Semaphore(2)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there is none here
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        path, method = scope["path"], scope["method"]
        address = str((scope.get("client") or ("",))[0])
        raw, send = send, self._with_headers(send, kept=path.startswith("/assets/") and method == "GET")
        writes = method not in ("GET", "HEAD", "OPTIONS")
        if writes and sent.get("sec-fetch-site") == "cross-site":
            await _say(send, 403, "This was sent by a page of another site: open specviz itself and try again.")
            return
        who = address
        if self.users is not None:
            if path == "/login":
                await self._login(scope, receive, self._with_headers(raw, LOCKED), address)
                return
            token = _cookie(sent.get("cookie"), SESSION)
            name = self.users.who(token) if token else ""
            if not name:
                await _ask_in(send, scope, sent)
                return
            if path == "/logout" and method == "POST":
                self.users.sign_out(token)
                gone = f"{SESSION}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
                await _reply(send, 200, b"{}", "application/json", ("set-cookie", gone))
                return
            who = scope[OWNER] = f"user:{name}"  # a colon: no browser's id can be that
        elif not self.desk.rules.shared:
            who = browser_id(sent.get("cookie")) or address
        if writes and (wait := self.asks.take(who)):
            text = f"More than {self.asks.most} requests came from you in a minute: wait {_span(wait)} and try again."
            await _say(send, 429, text, ("retry-after", str(int(wait) + 1)))
            return
        if writes and path == UPLOAD and (wait := self.uploads.take(who)):
            text = f"You sent {self.uploads.most} files within a minute, which is the most: wait {_span(wait)}."
            await _say(send, 429, text, ("retry-after", str(int(wait) + 1)))
            return
        most = self.desk.rules.upload_bytes + 65536 if path == UPLOAD else MAX_ASKED
        if writes and sent.get("content-length", "0").isdecimal() and int(sent.get("content-length", "0")) > most:
            await _say(send, 413, _too_large(most))
            return
        caller.set(who)
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            page = path == "/" and method == "GET"
            out = self._page(noted, sent, with_cookie=self.users is None) if page else noted
            await self.app(scope, _bounded(receive, most) if writes else receive, out)
        except _TooLarge:
            if not started:
                await _say(send, 413, _too_large(most))

    def _with_headers(self, send: Send, policy: str = POLICY, *, kept: bool = False) -> Send:
        """``kept``: browsers may keep it for ever, as Gradio's scripts, which are named by their content."""
        wanted = HEADERS | {"content-security-policy": policy} | (STRICT if self.desk.rules.shared else {})
        coded = [(name.encode(), value.encode()) for name, value in wanted.items()]

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(k, v) for k, v in message["headers"] if k.lower().decode() not in wanted]
                if kept and message["status"] == 200:
                    headers = [(k, v) for k, v in headers if k.lower() != b"cache-control"]
                    headers.append((b"cache-control", b"public, max-age=31536000, immutable"))
                message = {**message, "headers": [*headers, *coded]}
            await send(message)

        return guarded

    def _page(self, send: Send, sent: dict[str, str], *, with_cookie: bool) -> Send:
        """The page's HTML with our head, and a cookie for a browser that has none."""
        start: Message | None = None
        body = b""

        async def changed(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                headers = [(k, v) for k, v in message["headers"] if k.lower() != b"content-length"]
                headers.append((b"cache-control", b"no-cache"))
                if with_cookie and not browser_id(sent.get("cookie")):
                    value = f"{COOKIE}={secrets.token_hex(16)}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax"
                    headers.append((b"set-cookie", value.encode()))
                start = {**message, "headers": headers}
            elif message["type"] == "http.response.body":
                body += message.get("body", b"")
                if message.get("more_body"):
                    return
                assert start is not None
                whole = ui.with_head(body.decode("utf-8", "replace")).encode()
                await send({**start, "headers": [*start["headers"], (b"content-length", str(len(whole)).encode())]})
                await send({"type": "http.response.body", "body": whole})
            else:
                await send(message)

        return changed

    async def _login(self, scope: Scope, receive: Receive, send: Send, address: str) -> None:
        assert self.users is not None
        if scope["method"] != "POST":
            asked = parse_qs(scope["query_string"].decode("latin-1"))
            await _reply(send, 200, login_page(_inside(asked.get("next", [""])[0])), "text/html; charset=utf-8")
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False) and len(body) <= MAX_LOGIN
        given = parse_qs(body[:MAX_LOGIN].decode("utf-8", "replace"), keep_blank_values=True)
        name, password = given.get("name", [""])[0].strip(), given.get("password", [""])[0]
        target = _inside(given.get("next", [""])[0])
        extra: tuple[tuple[str, str], ...] = ()
        token = ""
        async with self.signing:  # many guesses at a time wait here, not in the threads that all others need
            wait = self.users.tries.wait_s(name[:80], address)
            if not wait:
                token = await run_in_threadpool(self.users.sign_in, name, password, address)
        if wait:
            status, said = 429, f"Too many tries failed: wait {_span(wait)} and try again."
            extra = (("retry-after", str(int(wait) + 1)),)
        else:
            if token:
                secure = "; Secure" if scope.get("scheme") == "https" else ""
                value = (
                    f"{SESSION}={token}; Path=/; Max-Age={int(self.users.session_s)}; HttpOnly; SameSite=Lax{secure}"
                )
                await _reply(send, 303, b"", "text/plain", ("location", f"./{target}"), ("set-cookie", value))
                return
            status, said = 401, "Name and password do not belong together: check both and try again."
        await _reply(send, status, login_page(target, name, said), "text/html; charset=utf-8", *extra)


def _bounded(receive: Receive, most: int) -> Receive:
    """A body of unknown length, cut off where it grows too large."""
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most:
            raise _TooLarge
        return message

    return counted


def _too_large(most: int) -> str:
    return f"More than {most >> 20} MiB were sent, and no more are taken here: send less."


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def _inside(target: str) -> str:
    """Where to go after signing in: an address of the page itself, never another site's."""
    return "?" + quote(target[1:500], safe="=&-._~,%+") if target.startswith("?") else ""


def _cookie(header: str | None, name: str) -> str:
    try:
        morsel = SimpleCookie(header or "").get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None and len(morsel.value) < 100 else ""


async def _reply(send: Send, status: int, body: bytes, media: str, *more: tuple[str, str]) -> None:
    headers = [("content-type", media), ("content-length", str(len(body))), ("cache-control", "no-store"), *more]
    coded = [(k.encode(), v.encode("latin-1", "replace")) for k, v in headers]
    await send({"type": "http.response.start", "status": status, "headers": coded})
    await send({"type": "http.response.body", "body": body})


async def _say(send: Send, status: int, text: str, *more: tuple[str, str]) -> None:
    await _reply(send, status, json.dumps({"error": text}).encode(), "application/json", *more)


async def _ask_in(send: Send, scope: Scope, sent: dict[str, str]) -> None:
    """Nobody is signed in: the login page for somebody who looks at the page, a sentence for everything else."""
    if scope["path"] == "/" and scope["method"] == "GET":
        query = scope["query_string"].decode("latin-1")
        target = "login" + (f"?next={quote('?' + query, safe='')}" if query else "")
        await _reply(send, 303, b"", "text/plain", ("location", target))
    else:
        await _say(send, 401, "You are not signed in, or no longer: load the page again and sign in.")


def login_page(target: str = "", name: str = "", said: str = "") -> bytes:
    """The page where one signs in; it has no script. Everything that was given is escaped."""
    words = f'<p class="wrong" role="alert">{html.escape(said)}</p>' if said else "<p>Sign in to go on.</p>"
    page = Template((HERE / "login.html").read_text(encoding="utf-8"))
    return page.substitute(
        said=words, name=html.escape(name[:40]), next=html.escape(target),
        first="" if name else "autofocus", second="autofocus" if name else "",
    ).encode()  # fmt: skip
