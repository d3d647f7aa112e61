"""Signing in and out: a page without a script, and its two routes."""

from __future__ import annotations

import asyncio
import html
from string import Template
from typing import Annotated
from urllib.parse import quote

from fastapi import FastAPI, Form, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse

from specviz.server.guard import SESSION, span
from specviz.server.http import answer, cookie
from specviz.server.users import Users

from .assets import FOLDER

Field = Annotated[str, Form()]


def add(app: FastAPI, users: Users) -> None:
    """``/login`` and ``/logout`` for ``users``."""
    signing = asyncio.Semaphore(2)  # many guesses at a time wait here, not in the threads that all others need

    @app.get("/login")
    def page(next: str = "") -> Response:
        return HTMLResponse(login_page(_local_path(next)), headers={"cache-control": "no-store"})

    @app.post("/login")
    async def sign_in(request: Request, name: Field = "", password: Field = "", next: Field = "") -> Response:
        name, target = name.strip(), _local_path(next)
        address = request.client.host if request.client else ""
        token = ""
        async with signing:
            wait = users.tries.wait_s(name[:80], address)
            if not wait:
                token = await run_in_threadpool(users.sign_in, name, password, address)
        headers = {"cache-control": "no-store"}
        if token:
            secure = request.scope["scheme"] == "https"
            headers["set-cookie"] = cookie(SESSION, token, int(users.session_s), secure=secure)
            return RedirectResponse(f"./{target}", 303, headers)
        status, message = 401, "Name and password do not belong together: check both and try again."
        if wait:
            status, message = 429, f"Too many tries failed: wait {span(wait)} and try again."
            headers["retry-after"] = str(int(wait) + 1)
        return HTMLResponse(login_page(target, name, message), status, headers)

    @app.post("/logout")
    def sign_out(request: Request) -> Response:
        users.sign_out(request.cookies.get(SESSION, ""))
        response = answer({})
        response.headers["set-cookie"] = cookie(SESSION, "", 0)
        return response


def _local_path(target: str) -> str:
    """The address to go to after signing in: an address of the page itself, never another site's."""
    return "?" + quote(target[1:500], safe="=&-._~,%+") if target.startswith("?") else ""


def login_page(target: str = "", name: str = "", message: str = "") -> bytes:
    """The page where one signs in; it has no script. Everything that was given is escaped."""
    words = f'<p class="wrong" role="alert">{html.escape(message)}</p>' if message else "<p>Sign in to go on.</p>"
    page = Template((FOLDER / "login.html").read_text(encoding="utf-8"))
    return page.substitute(
        said=words, name=html.escape(name[:40]), next=html.escape(target),
        first="" if name else "autofocus", second="autofocus" if name else "",
    ).encode()  # fmt: skip
