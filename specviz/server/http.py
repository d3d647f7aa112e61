"""The server's routes by what they serve: each module has ``add(app, desk)``. Here is what they have in common."""

from __future__ import annotations

import json
from http.cookies import CookieError, SimpleCookie
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from .forms import Rejected
from .runner import sentence
from .store import is_id

COOKIE = "specviz_browser"
OWNER = "specviz.owner"  # in a request's scope, where users sign in
MAX_ASKED = 8 << 20  # bytes of a question, a prompt file included


def browser_id(cookie_header: str | None) -> str:
    """The id of a browser, from its Cookie header; "" if it has none."""
    try:
        morsel = SimpleCookie(cookie_header or "").get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel is not None and is_id(morsel.value) else ""


def owner_of(request: Request) -> str:
    """Whose runs are meant: the user's who is signed in, or the browser's."""
    return request.scope.get(OWNER) or browser_id(request.headers.get("cookie"))


def session_of(given: dict[str, Any]) -> str:
    """The open page that asks, by the name it gives itself: its runs end when it is closed; "" without one."""
    session = given.get("session")
    return session if isinstance(session, str) and len(session) < 100 else ""


def user_of(request: Request) -> str:
    """The name of who is signed in; "" where nobody signs in."""
    return str(request.scope.get(OWNER) or "").removeprefix("user:")


def problem(status: int, text: str, *, retry_s: int = 0) -> JSONResponse:
    """A sentence the page shows."""
    return JSONResponse({"error": text}, status, {"retry-after": str(retry_s)} if retry_s else None)


def refused(error: Exception) -> JSONResponse:
    """Why something was not done: 429 where it may be asked for again later, else 422."""
    retry_s = int(getattr(error, "retry_s", 0))
    text = str(error) if isinstance(error, Rejected) else sentence(error)
    return problem(429 if retry_s else 422, text, retry_s=retry_s)


def answer(payload: Any) -> Response:
    """JSON that no browser keeps."""
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
    return Response(text, media_type="application/json", headers={"cache-control": "no-store"})


def is_json(request: Request) -> bool:
    """Whether JSON was sent, by its type: another site's form cannot send that."""
    return request.headers.get("content-type", "").partition(";")[0].strip() == "application/json"


async def asked(request: Request) -> dict[str, Any]:
    """The JSON object that was sent. Raises ValueError with a sentence where it is none, or too large."""
    if not is_json(request):
        raise ValueError("what is asked is sent as JSON")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_ASKED:
            raise ValueError(f"more than {MAX_ASKED >> 20} MiB were sent: use a smaller prompt file")
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("what is asked is one JSON object")
    return found
