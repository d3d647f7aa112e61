"""Things that all routes have in common: who asks, answers, and errors as one sentence."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import cookie_parser

from decoders.errors import UserError
from specviz.places import is_id
from specviz.words import sentence

from .bodies import invalid
from .forms import Missing, Refusal
from .store import UnknownTrace

log = logging.getLogger(__name__)

COOKIE = "specviz_browser"
OWNER = "specviz.owner"  # in a request's scope, where users sign in or a public server's visitor has no cookie
MAX_BODY = 8 << 20  # bytes of a question, a prompt file included


# --- who asks ---


def browser_id(cookie_header: str | None) -> str:
    """The id of a browser, from its Cookie header; "" if it has none."""
    value = cookie_parser(cookie_header or "").get(COOKIE, "")
    return value if is_id(value) else ""


def owner_of(request: Request) -> str:
    """Owner of the runs that are meant: the user who is signed in, or the browser. On a public server a request without
    a cookie has an owner of its own (``Guard``), so that nobody else's work is its sender's.
    """
    return request.scope.get(OWNER) or browser_id(request.headers.get("cookie"))


def user_of(request: Request) -> str:
    """The name of who is signed in; "" where nobody signs in."""
    kind, _, name = str(request.scope.get(OWNER) or "").partition(":")
    return name if kind == "user" else ""


def cookie(name: str, value: str, max_age: int, *, secure: bool = False, in_frame: bool = False) -> str:
    """A Set-Cookie header that no script can read and other sites' requests do not carry; ``in_frame``: a page in
    another site's frame has one of its own there.
    """
    sites = "None; Secure; Partitioned" if in_frame else f"Lax{'; Secure' if secure else ''}"
    return f"{name}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite={sites}"


Owner = Annotated[str, Depends(owner_of)]
User = Annotated[str, Depends(user_of)]


# --- what is answered ---


def answer(payload: Any) -> Response:
    """JSON that no browser keeps."""
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
    return Response(text, media_type="application/json", headers={"cache-control": "no-store"})


def attachment(data: str | bytes, media: str, name: str) -> Response:
    """A file to be saved under a name."""
    return Response(data, media_type=media, headers={"content-disposition": f'attachment; filename="{name}"'})


def problem(status: int, text: str, *, retry_s: int = 0, place: str = "") -> JSONResponse:
    """A sentence the page shows, and the ``place`` of a form that it belongs to."""
    told = {"error": text, "place": place} if place else {"error": text}
    return JSONResponse(told, status, {"retry-after": str(retry_s)} if retry_s else None)


def refusal(error: Exception) -> JSONResponse:
    """The reason why something was not done: 404 for what is not there, 429 for what may be asked for again later,
    else 422.
    """
    retry_s = int(getattr(error, "retry_s", 0))
    if isinstance(error, AnyHTTPException):
        if isinstance(error.__cause__, RecursionError):  # a hundred thousand brackets deep
            return problem(422, "What was sent is nested too deeply.")
        return problem(error.status_code, str(error.detail), retry_s=retry_s)
    if isinstance(error, RequestValidationError | ValidationError):
        return problem(422, invalid(error.errors()))
    if isinstance(error, UnknownTrace):
        return problem(404, str(error))
    text = str(error) if isinstance(error, Refusal) else sentence(error)
    status = 404 if isinstance(error, Missing) else 429 if retry_s else 422
    return problem(status, text, retry_s=retry_s, place=getattr(error, "place", ""))


def tell_errors(app: FastAPI) -> None:
    """From here on every error of a route that its user can mend is {"error": sentence}."""

    async def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, ValueError) and not isinstance(error, UserError | RequestValidationError):
            log.warning("%s was refused", request.scope["path"], exc_info=error)  # perhaps it is not the user's mistake
        return refusal(error)

    for kind in (AnyHTTPException, RequestValidationError, UnknownTrace, ValueError):
        app.add_exception_handler(kind, answer)
