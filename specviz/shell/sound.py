"""Requests that make no sense, refused with a sentence: Gradio's routes would break on them, and answer 500.

``Sound`` stands before every route. What no route or file can be called, Gradio's routes that the page does not use,
and JSON that is none (``NaN``, ``1e999``, a lone surrogate), go no further. ``mend`` gives Gradio's application
sentences for what it raises about a request; whatever else is raised there stays an error of the server, and is logged.
"""

from __future__ import annotations

import json
import logging
import traceback
from contextvars import ContextVar
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from gradio_client.utils import construct_args
from python_multipart.exceptions import FormParserError
from starlette.requests import ClientDisconnect
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specviz.server.http import problem, refusal
from specviz.words import sentence

from .toolkit import gr, route_utils

log = logging.getLogger(__name__)

# they break on a field that is no file
FILE_READERS = (route_utils.GradioMultiPartParser.on_part_data.__code__, route_utils.upload_fn.__code__)

API, UPLOAD, TYPED_CALL = "/gradio_api/", "/gradio_api/upload", "/gradio_api/call/v2/"
ASSISTANTS = "/mcp"
CALLS = ("/gradio_api/run/", "/gradio_api/api/", "/gradio_api/call/", "/gradio_api/queue/join")
UNUSED = tuple(  # routes of components that are not on the page, of Gradio's own tools, and to other servers
    API + name for name in (
        "component_server", "custom_component/", "deep_link", "dev/", "mcp", "process_recording", "proxy=", "stream/",
        "undo-vibe-edit", "vibe-",
    )
)  # fmt: skip
STREAMS = ("/gradio_api/queue/data", "/gradio_api/call/")  # of events
MOST_NAME = 255  # bytes of a file's name
NO_FORM = "What was sent is no form with files."
NO_PAGE = "There is no such page."
NO_ENDPOINT = "There is no such endpoint: there are run, methods and trace_summary."

_unfit: ContextVar[list[str] | None] = ContextVar("unfit", default=None)  # what is wrong with a request's data


class Blocks(gr.Blocks):
    """Gradio's page; data that does not fit its components is the sender's mistake."""

    async def preprocess_data(self, block_fn: Any, *inputs: Any, **keywords: Any) -> Any:
        unfit = _unfit.get()
        if block_fn.fn is None:  # an event of the browser alone
            if unfit is not None:
                unfit.append(NO_ENDPOINT)
            raise gr.Error(NO_ENDPOINT, print_exception=False)
        try:
            return await super().preprocess_data(block_fn, *inputs, **keywords)
        except (ValueError, gr.Error) as error:
            log.info("an event's data was refused", exc_info=error)
            if unfit is not None:
                unfit.append("The fields that were sent are not those of the form: load the page again.")
            raise gr.Error("The fields do not fit the form.", print_exception=False) from error


class Sound:
    """Refuses what nobody can answer, before any route is asked."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, request = scope["path"], Request(scope)
        if not _nameable(path) or path.startswith(UNUSED) or (path == "/" and request.query_params.get("page")):
            await problem(404, NO_PAGE)(scope, receive, send)
            return
        if request.method == "POST" and path.startswith(("/api/", API, ASSISTANTS)) and path != UPLOAD:
            try:
                body, receive = await _whole(receive)
            except HTTPException as error:  # it is too large
                await refusal(error)(scope, receive, send)
                return
            if text := await run_in_threadpool(_unsound, body):
                await problem(422, text)(scope, receive, send)
                return
        if path.startswith(API):
            await self._answer(path, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _answer(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Gradio's answer; 422 in place of 500 where the data did not fit."""
        unfit: list[str] = []
        reset = _unfit.set(unfit)
        is_replaced = False

        async def mend(message: Message) -> None:
            nonlocal is_replaced
            if message["type"] == "http.response.start" and message["status"] == 500 and unfit:
                is_replaced = True
                await problem(422, unfit[0])(scope, receive, send)
            elif not is_replaced:
                await send(message)

        try:
            await self.app(scope, receive, mend)
        except RuntimeError as error:  # Starlette's: the answer had begun when this was raised
            if not path.startswith(STREAMS) or not _stream_over(error.__cause__):
                raise
            await send({"type": "http.response.body"})  # the stream's last event has told it
        finally:
            _unfit.reset(reset)


def mend(app: FastAPI) -> None:
    """Sentences for what Gradio's application, which is mounted in ``app``, raises about a request."""
    gradio: Any
    (gradio,) = (route.app for route in app.routes if isinstance(route, Mount) and isinstance(route.app, FastAPI))

    async def no_endpoint(request: Request, error: Exception) -> Response:
        if isinstance(error, KeyError):
            path, missing = request.scope["path"], error.args[0] if error.args else None
            number = isinstance(missing, int) and missing not in gradio.get_blocks().fns
            if not path.startswith(CALLS) or not (number or missing == f"/{path.removeprefix(TYPED_CALL).rstrip('/')}"):
                raise error  # a bug
        return problem(404, NO_ENDPOINT)

    async def unfit(request: Request, error: Exception) -> Response:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if frame.f_code is construct_args.__code__:  # an argument is missing, or there is none of that name
            return problem(422, sentence(ValueError(str(error))))
        if frame.f_code in FILE_READERS:
            return problem(400, NO_FORM)
        raise error  # a bug

    for kind, handler in (
        (TypeError, unfit),
        (AttributeError, unfit),
        (RequestValidationError, lambda _, error: refusal(error)),
        (route_utils.FnIndexInferError, no_endpoint),
        (KeyError, no_endpoint),
        (FormParserError, lambda *_: problem(400, NO_FORM)),
        (ClientDisconnect, lambda *_: problem(400, NO_FORM)),  # nobody reads it: the sender left in the middle
    ):
        gradio.add_exception_handler(kind, handler)


def _stream_over(error: BaseException | None) -> bool:
    """True for Gradio's ways to end a stream of events: its session is not there, or a second stream has taken it."""
    if isinstance(error, KeyError):
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        return frame.f_code.co_name == "sse_stream"
    return isinstance(error, HTTPException)


def _nameable(path: str) -> bool:
    """True for a string that a route or a file can be called by.

    >>> _nameable("/assets/a.js"), _nameable("/assets/" + 256 * "a"), _nameable("/\\x00")
    (True, False, False)
    """
    return path.isprintable() and all(len(name.encode("utf-8", "replace")) <= MOST_NAME for name in path.split("/"))


def _unsound(body: bytes) -> str:
    """The fault of JSON that Python reads all the same; "" where there is none, or it is no JSON at all.

    >>> _unsound(b'{"a": 1}'), _unsound(b'{"a": 1e999}')
    ('', 'What was sent is not JSON: a number in it is not finite, or a text not Unicode.')
    """
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (json.JSONDecodeError, UnicodeDecodeError):
        return ""  # its route says so
    except ValueError:
        return "What was sent is not JSON: a number in it is not finite, or a text not Unicode."
    except RecursionError:
        return "What was sent is nested too deeply."
    if isinstance(value, dict) and value.get("session_hash") == "":  # Gradio would queue it under another name
        return "The name of the open page, “session_hash”, is empty: leave it out or give one."
    return ""


async def _whole(receive: Receive) -> tuple[bytes, Receive]:
    """A request's body (the guard has bounded it), and a ``receive`` that gives it once more."""
    body, has_more = b"", True
    while has_more:
        message = await receive()
        body += message.get("body", b"")
        has_more = message["type"] == "http.request" and message.get("more_body", False)
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return body, again
