"""The web server: routes for traces, live events and files, and the pages mounted last.

Nothing here imports torch: the page opens on a recorded run while the model loads in the background.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import os
import re
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from starlette.middleware.gzip import GZipMiddleware

from specviz import shell as ui
from specviz.pages.app import open_desk
from specviz.pages.attribution import routes as attribution
from specviz.pages.compare import routes as compare
from specviz.pages.lab import routes as lab
from specviz.pages.lessons import routes as lessons
from specviz.pages.runs import routes as runs
from specviz.pages.trees import routes as trees
from specviz.pages.whatif import routes as whatif

from .desk import Desk
from .guard import Guard
from .http import answer, problem, user_of
from .limits import rules_for
from .store import SUFFIX, UnknownTrace, is_id
from .users import Users

log = logging.getLogger(__name__)

TABLES = {"csv-nodes": "nodes", "csv-steps": "steps", "csv-candidates": "candidates", "csv-tokens": "tokens"}
FORMATS = ("trace", "html", *TABLES)


def _routes(app: FastAPI, desk: Desk) -> None:
    store, runner = desk.store, desk.runner

    @app.get("/api/status")
    async def status(request: Request) -> Response:
        user = user_of(request)
        return answer({"model": desk.loader.info(), **runner.load(), "rules": desk.rules.told(), "user": user})

    @app.get("/api/methods")
    def methods() -> Response:
        return answer(desk.catalog())

    @app.get("/api/first")
    async def first(request: Request) -> Response:
        """The run to open on; an empty object where there is none yet."""
        return await trace(desk.first, request) if desk.first else answer({})

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
            never = runner.unstarted(key)
            return problem(404, never["error"] if never is not None else str(error))
        headers = {"cache-control": "no-store" if job is not None else "no-cache", "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(blob, media_type="application/json", headers={**headers, "content-encoding": "gzip"})
        return Response(await run_in_threadpool(gzip.decompress, blob), media_type="application/json", headers=headers)

    @app.get("/api/live/{key}")
    async def live(key: str, request: Request, after: int = -1) -> Response:
        job = runner.job(key) if is_id(key) else None
        if job is None:  # over, or never there
            never = runner.unstarted(key)
            if key not in store and never is None:
                return problem(404, str(UnknownTrace(key[:40])))
            last_event = {"seq": 0, **(never or {"done": True, "started": True})}
            over = f"data: {json.dumps(last_event)}\n\n"
            return Response(over, media_type="text/event-stream", headers={"cache-control": "no-store"})
        last = request.headers.get("last-event-id", "")
        seen = int(last) if last.isdecimal() and len(last) < 12 else after

        async def events() -> AsyncIterator[str]:
            yield "retry: 1000\n\n"
            async with contextlib.aclosing(job.feed.watch(seen)) as feed:
                async for text in feed:
                    yield ": still here\n\n" if text is None else f"id: {json.loads(text)['seq']}\ndata: {text}\n\n"

        return StreamingResponse(
            events(), media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )

    @app.get("/api/traces/{key}/download")
    def download(key: str, format: str = "trace", step: int = 0) -> Response:
        if format not in FORMATS:
            return problem(422, f"The format {format[:40]!r} is unknown: use one of {', '.join(FORMATS)}.")
        try:
            if not is_id(key):
                raise UnknownTrace(key[:40])
            if key not in store:
                desk.bring(key)
            found = store.get(key)
        except UnknownTrace as error:
            return problem(404, str(error))
        data, media, name = exported(found, format, step)
        return Response(data, media_type=media, headers={"content-disposition": f'attachment; filename="{name}"'})

    for part in (runs, lab, trees, compare, attribution, whatif, lessons):
        part.add(app, desk)

    @app.get("/web/{name:path}")
    def web(name: str, request: Request) -> Response:
        asset = ui.asset(name)
        if asset is None:
            return problem(404, "There is no such file.")
        headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(asset.data, media_type=asset.media, headers=headers)
        return Response(asset.zipped, media_type=asset.media, headers={**headers, "content-encoding": "gzip"})


def exported(trace: Any, format: str, step: int = 0) -> tuple[bytes, str, str]:
    """A trace as a file: its bytes, media type and name. ``format`` is one of ``FORMATS``."""
    given = f"{trace.run.get('method', {}).get('name') or 'run'}-{trace.run['id']}"
    name = re.sub(r"[^A-Za-z0-9._-]", "-", given[-100:])  # a header's: a trace may come from anybody
    if format == "trace":
        from decoders.trace import files as tracefile

        data = tracefile.save(trace, None)
        assert data is not None
        return data, "application/zip", name + SUFFIX
    if format == "html":
        from specviz.views.export import standalone_html

        return standalone_html(trace, step=step).encode(), "text/html; charset=utf-8", name + ".html"
    from specviz.views.frames import to_csv

    table = TABLES[format]
    return to_csv(trace, table).encode(), "text/csv; charset=utf-8", f"{name}-{table}.csv"


def create_app(
    model: str | None = None, trace: str | Path | None = None, *, desk: Desk | None = None, users: Users | None = None
) -> FastAPI:
    """The whole application; with ``users`` only they may use it, after signing in.

    The model starts to load when it starts; raises ValueError if ``trace`` cannot be read.
    """
    desk = desk or open_desk(model, trace)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        desk.begin()
        yield
        await run_in_threadpool(desk.end)

    app = FastAPI(title="specviz", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.desk = desk
    _routes(app, desk)
    app.add_middleware(Guard, desk=desk, users=users)
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=4)
    gr.mount_gradio_app(
        app,
        ui.build(desk),
        path="/",
        theme=ui.theme(),
        run_history=False,
        footer_links=[],
        enable_monitoring=False,
        show_error=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        max_file_size=desk.rules.upload_bytes,
        app_kwargs={"docs_url": None, "redoc_url": None, "openapi_url": None},
    )
    return app


class _Server(uvicorn.Server):
    """Ends without a word: open pages hold connections that never end, which uvicorn would report as errors."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def serve(
    model: str | None = None,
    host: str = "127.0.0.1",
    port: int = 7860,
    trace: str | Path | None = None,
    open_browser: bool = False,
    *,
    device: str | None = None,
    dtype: str | None = None,
    drafter: str | None = None,
    auth_file: str | Path | None = None,
    public: bool = False,
    limits: Mapping[str, str] | None = None,
) -> None:
    """Run the app until it is interrupted. With a ``trace`` and no ``model`` it only shows recorded runs. ``drafter``
    is the draft model that SpS uses. ``auth_file`` names who may sign in, ``public`` and ``limits`` what users may do
    (``limits.rules_for``).

    Raises ValueError with one sentence if a file cannot be read, a limit is none, or the port is taken.
    """
    rules = rules_for(public=public, accounts=auth_file is not None, changed=limits)
    users = Users(Path(auth_file)) if auth_file is not None else None
    if users is not None and users.readable_by_others():
        log.warning("%s can be read by other users of this computer: chmod 600 it", users.path)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            port = probe.getsockname()[1]
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise ValueError(
                f"cannot listen on {host}, port {port}: {reason}; choose another one with --port"
            ) from None
    desk = open_desk(model, trace, device=device, dtype=dtype, drafter=drafter, rules=rules)
    app = create_app(desk=desk, users=users)
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/"
    print(f"specviz is at {address} (Ctrl+C ends it)", flush=True)
    if host not in ("127.0.0.1", "localhost", "::1") and not rules.shared:
        log.warning("whoever can reach %s may use this server: --auth-file and --public set limits", host)
    if open_browser:
        timer = threading.Timer(1.0, webbrowser.open, [address])
        timer.daemon = True
        timer.start()
    _Server(uvicorn.Config(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=1)).run()
