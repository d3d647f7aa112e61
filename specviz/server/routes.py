"""The routes that belong to no page: the server's state, the methods, and runs as JSON, as live events and as files."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
from collections.abc import AsyncIterator, Callable
from functools import wraps
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from decoders.trace import files as tracefile
from specviz.places import SUFFIX, is_id
from specviz.words import enumeration

from .desk import Desk, Service
from .http import answer, attachment, problem, user_of
from .store import UnknownTrace

TABLES = {"csv-nodes": "nodes", "csv-steps": "steps", "csv-candidates": "candidates", "csv-tokens": "tokens"}
FORMATS = ("trace", "html", *TABLES)


def add(app: FastAPI, desk: Desk) -> None:
    """State, methods and runs of a desk."""
    store, runner = desk.store, desk.runner

    @app.get("/api/status")
    async def status(request: Request) -> Response:
        user = user_of(request)
        picks = desk.loader.pick is not None and desk.rules.may_pick(user)
        state = {"model": desk.loader.info(), **runner.load(), "rules": desk.rules.to_json(), "user": user}
        backends = {} if runner.pool is None else {"backends": runner.pool.status()}
        return answer({**state, "picks": picks, **backends})

    @app.get("/api/methods")
    def methods() -> Response:
        return answer(desk.catalog())

    @app.get("/api/traces/{key}")
    async def trace(key: str, request: Request) -> Response:
        if not is_id(key):
            return problem(404, "This link names no run: its id is not well formed.")
        job = runner.job(key)
        if job is None and key not in store:
            await run_in_threadpool(desk.bring, key)
        try:
            blob = await run_in_threadpool(job.snapshot) if job is not None else store.blob(key)
        except UnknownTrace as error:
            never = runner.last_event(key)
            return problem(404, never["error"] if never is not None else str(error))
        headers = {"cache-control": "no-store" if job is not None else "no-cache", "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(blob, media_type="application/json", headers={**headers, "content-encoding": "gzip"})
        return Response(await run_in_threadpool(gzip.decompress, blob), media_type="application/json", headers=headers)

    @app.get("/api/first")
    async def first(request: Request) -> Response:
        """The run to open on; an empty object where there is none yet."""
        return await trace(desk.first, request) if desk.first else answer({})

    @app.get("/api/live/{key}")
    async def live(key: str, request: Request, after: int = -1) -> Response:
        job = runner.job(key) if is_id(key) else None
        if job is None:  # over, or never there
            never = runner.last_event(key)
            if key not in store and never is None:
                return problem(404, str(UnknownTrace(key[:40])))
            last_event = {"seq": 0, **(never or {"done": True, "started": True})}
            over = f"data: {json.dumps(last_event)}\n\n"
            return Response(over, media_type="text/event-stream", headers={"cache-control": "no-store"})
        last = request.headers.get("last-event-id", "")
        start_sequence = int(last) if last.isdecimal() and len(last) < 12 else after

        async def events() -> AsyncIterator[str]:
            yield "retry: 1000\n\n"
            async with contextlib.aclosing(job.feed.watch(start_sequence)) as feed:
                async for text in feed:
                    yield ": still here\n\n" if text is None else f"id: {json.loads(text)['seq']}\ndata: {text}\n\n"

        return StreamingResponse(
            events(), media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )

    @app.get("/api/traces/{key}/download")
    def download(key: str, format: str = "trace", step: int = 0) -> Response:
        if format not in FORMATS:
            return problem(422, f"The format {format[:40]!r} is unknown: use one of {', '.join(FORMATS)}.")
        return attachment(*export(desk.trace(key), format, step))


def add_page(app: FastAPI, service: Service) -> None:
    """The routes of a page: its service's marked methods under ``/api/<page>``, and 404 for what else is sent there."""
    actions: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for kind in reversed(type(service).__mro__) for name in vars(kind)):
        work = getattr(service, name)
        if route := getattr(work, "route", None):
            verb, path = route
            address = f"/api/{service.name}/{path}".rstrip("/")
            app.add_api_route(address, _answer(work), methods=[verb], response_model=None)
            if verb == "POST" and path:
                folder, _, action = address.rpartition("/")
                actions.setdefault(folder, []).append(action)
    for folder, names in actions.items():
        app.add_api_route(
            f"{folder}/{{what}}", _no_other(f"{service.cannot} {{}}: it can {enumeration(names)}."), methods=["POST"]
        )


def _answer(work: Callable[..., Any]) -> Callable[..., Response]:
    @wraps(work)
    def route(*args: Any, **keywords: Any) -> Response:
        result = work(*args, **keywords)
        return (
            result if isinstance(result, Response) else answer(result if isinstance(result, dict) else {"done": result})
        )

    return route


def _no_other(text: str) -> Callable[[str], Response]:
    return lambda what: problem(404, text.format(repr(what[:40])))


def file_stem(trace: Any) -> str:
    """A run's file name without its end, for a header: a trace may come from anybody."""
    stem = f"{trace.run.get('method', {}).get('name') or 'run'}-{trace.run['id']}"
    return re.sub(r"[^A-Za-z0-9._-]", "-", stem[-100:])


def export(trace: Any, format: str, step: int = 0) -> tuple[bytes, str, str]:
    """A trace as a file: its bytes, media type and name. ``format`` is one of ``FORMATS``."""
    name = file_stem(trace)
    if format == "trace":
        data = tracefile.save(trace, None)
        assert data is not None
        return data, "application/zip", name + SUFFIX
    if format == "html":
        from specviz.views.export import standalone_html

        return standalone_html(trace, step=step).encode(), "text/html; charset=utf-8", name + ".html"
    from specviz.views.frames import to_csv

    table = TABLES[format]
    return to_csv(trace, table).encode(), "text/csv; charset=utf-8", f"{name}-{table}.csv"
