"""The web app, put together: a desk with every page, its routes, the guard before them, and Gradio's page mounted last.

Nothing here imports torch: the page opens on a recorded run while the model loads in the background.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware

from decoders.errors import UserError, reason_of
from decoders.model.files.catalog import default_model, model_name, model_place
from specviz.model_records import places_of, remember
from specviz.pages import pages
from specviz.places import GALLERY, home
from specviz.server import routes
from specviz.server.backend_host import hosting_of
from specviz.server.connection import Connection
from specviz.server.desk import Desk
from specviz.server.forms import Refusal
from specviz.server.guard import Guard
from specviz.server.hosts import Hosts
from specviz.server.http import problem, tell_errors
from specviz.server.library import Library
from specviz.server.limits import Rules, rules_for
from specviz.server.loader import Loader, Tell
from specviz.server.pool import SeatPool
from specviz.server.runner import Runner
from specviz.server.store import EVERYBODY, TraceStore, load_folder
from specviz.server.users import Users
from specviz.shell import assets, frame, login, sound
from specviz.shell.toolkit import gr
from specviz.workers.kinds import Workers

log = logging.getLogger(__name__)
OPENS_ON = "2-class-docstring-pld-h"  # the gallery's run that a newcomer sees: its best step copies twenty tokens
Mount = Callable[[FastAPI, Desk], contextlib.AbstractAsyncContextManager[Any] | None]  # for the server's life


def open_desk(
    model: str | None = None,
    trace: str | Path | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    engine: str | None = None,
    weights: str | None = None,
    drafter: str | None = None,
    rules: Rules | None = None,
    threads: int | None = None,
    backends: Workers | None = None,
    read_only: bool = False,
) -> Desk:
    """A desk for the server: the gallery, what earlier servers left, and the model, which loads in the background; with
    ``backends`` it is theirs too, and they do the runs. ``drafter`` is the draft model that SpS uses.

    With a ``trace`` and no ``model``, and where it is ``read_only``, nothing is loaded: for viewing only. Raises
    Refusal if the trace cannot be read.
    """
    store = TraceStore()
    library = Library(home() / "runs")
    load_folder(store, GALLERY, "gallery")
    pool = None
    if read_only:
        loader = Loader(None, reason="This server shows recorded runs; to run methods, install specviz yourself.")
    elif trace is not None and model is None:
        loader = Loader(None, reason="Opened for viewing only: start “python app.py” to run methods.")
    else:
        model_source = str(model) if model is not None else default_model()
        pool = SeatPool(backends.opener("--backends"), backends.names("backend")) if backends is not None else None

        def open_on(model: str, on: str | None, progress: Tell | None = None) -> Any:
            from decoders import load_target
            from decoders.model.target_model.size import check_room
            from specviz.quiet import settle

            check_room(model, device=device, dtype=dtype, weights=on, engine=engine)
            settle(threads or (backends.threads_each if backends is not None else None))
            target = load_target(model, device=device, dtype=dtype, engine=engine, progress=progress, weights=on)
            if pool is None:  # else backends are at work, which no process knows of
                target.engines.begin(runner.busy)
            return target

        def open_named(model: str, on: str | None, tell: Tell, *exceptions: type[Exception]) -> Any:
            target = open_on(model, on, tell)
            if drafter is not None:
                from decoders.drafters.sps import offer_drafter

                with contextlib.suppress(*exceptions):
                    offer_drafter(target, drafter)
            remember(model_place(model), target)
            return target

        def load() -> Any:
            target = open_named(model_source, weights, loader.tell)
            if pool is not None and backends is not None:
                opening = {"model": model_source, "device": device, "engine": engine, "weights": weights}
                pool.begin(hosting_of(backends, target, opening, drafter))
            return target

        def pick(model: str, on: str, tell: Tell) -> Any:
            return open_named(model, on, tell, UserError)  # its drafter was named for the first: SpS says what it lacks

        def open_other(key: str) -> Any:
            for place in places_of(key)[:1]:
                return open_on(place, loader.weights)
            return None

        public = rules is not None and rules.public
        fixed = public or pool is not None
        loader = Loader(
            load, name=model_name(model_source), model=model_source, weights=weights or "fp32", open_other=open_other,
            pick=None if fixed else pick,
        )  # fmt: skip
    runner = Runner(store, library, pool=pool)
    desk = Desk(store, runner, loader, pages=pages())
    desk.device, desk.dtype, desk.engine = device, dtype, engine
    desk.keep_to(rules or Rules())
    listed = [run["id"] for run in store.listing("")]
    desk.first = OPENS_ON if OPENS_ON in listed else next(iter(listed), "")
    if trace is not None:
        if not Path(trace).is_file():
            raise Refusal("file", f"There is no trace file {trace}.")
        desk.first = desk.open_file(Path(trace), owner=EVERYBODY)
    desk.library = library
    return desk


def create_app(
    model: str | None = None, trace: str | Path | None = None, *, desk: Desk | None = None, users: Users | None = None,
    hosts: Hosts | None = None, mounts: Sequence[Mount] = (), root_path: str = "",
) -> FastAPI:  # fmt: skip
    """The whole application; with ``users`` only they may use it, after signing in. It answers to ``hosts``, which are
    this machine's own names where none are given. ``mounts`` add routes, and what lasts as long as the server.
    ``root_path`` is where a proxy shows it, as "/specviz".

    The model starts to load when it starts; raises ValueError if ``trace`` cannot be read.
    """
    desk = desk or open_desk(model, trace)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        desk.begin()
        async with contextlib.AsyncExitStack() as stack:
            for context in contexts:
                await stack.enter_async_context(context)
            yield
        await run_in_threadpool(desk.end)

    app = FastAPI(title="specviz", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.desk = desk
    routes.add(app, desk)
    for service in desk.services.values():
        routes.add_page(app, service)
    app.get("/web/{name:path}")(_web)
    contexts = [context for mount in mounts if (context := mount(app, desk)) is not None]
    if users is not None:
        login.add(app, users)
    tell_errors(app)
    app.add_middleware(sound.Sound)
    dress = partial(assets.with_head, root=root_path)
    app.add_middleware(Guard, rules=desk.rules, users=users, dress=dress, hosts=hosts)
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=4)
    gr.mount_gradio_app(
        app,
        frame.build(desk),
        path="/",
        theme=frame.theme(),
        run_history=False,
        footer_links=[],
        enable_monitoring=False,
        show_error=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        root_path=root_path or None,
        max_file_size=desk.rules.upload_bytes,
        app_kwargs={"docs_url": None, "redoc_url": None, "openapi_url": None},
    )
    sound.mend(app)
    return app


def _web(name: str, request: Request) -> Response:
    file = assets.asset(name)
    if file is None:
        return problem(404, "There is no such file.")
    headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.data, media_type=file.media, headers=headers)
    return Response(file.gzip_data, media_type=file.media, headers={**headers, "content-encoding": "gzip"})


def checked_root(path: str) -> str:
    """Path under which a proxy shows the app, without a slash at its end. Raises ValueError for what can be none."""
    root = path.rstrip("/")
    if root and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", root):
        raise ValueError(
            f"--root-path {path[:60]!r} cannot be a path: give what stands behind the proxy's name, such as /specviz"
        )
    return root


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
    auth_file: str | Path | None = None,
    public: bool = False,
    limits: Mapping[str, str] | None = None,
    pickers: Sequence[str] = (),
    allow_hosts: Sequence[str] = (),
    prepare: Callable[[Desk], str] | None = None,
    mounts: Sequence[Mount] = (),
    root_path: str = "",
    **opening: Any,
) -> None:
    """Run the app until it is interrupted. With a ``trace`` and no ``model`` it only shows recorded runs; ``opening``
    are further arguments of ``open_desk``. ``auth_file`` names who may sign in, ``public``, ``limits`` and ``pickers``
    what users may do (``limits.rules_for``); ``allow_hosts`` are names that the server is reached by besides ``host``
    (``Hosts.of``). ``mounts`` and ``root_path`` as in ``create_app``.
    ``prepare`` is called with the desk before the page is put together, and gives the name of the tab that a browser is
    opened on.

    Raises ValueError with one sentence if a file cannot be read, a limit is none, or the port is taken.
    """
    hosts, root_path = Hosts.of(host, allow_hosts), checked_root(root_path)
    rules = rules_for(public=public, accounts=auth_file is not None, overrides=limits, pickers=pickers)
    users = Users(Path(auth_file)) if auth_file is not None else None
    if users is not None and users.readable_by_others():
        log.warning("%s can be read by other users of this computer: chmod 600 it", users.path)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            port = probe.getsockname()[1]
        except OSError as problem:
            reason = f"cannot listen on {host}, port {port}: {reason_of(problem)}"
            raise ValueError(f"{reason}; choose another one with --port") from None
    desk = open_desk(model, trace, rules=rules, **opening)
    tab = prepare(desk) if prepare is not None else ""
    app = create_app(desk=desk, users=users, hosts=hosts, mounts=mounts, root_path=root_path)
    shown_host = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"http://{shown_host}:{port}/{tab and f'?tab={tab}'}"
    print(f"specviz is at {address} (Ctrl+C ends it)", flush=True)
    if host not in ("127.0.0.1", "localhost", "::1") and not rules.is_shared:
        log.warning("whoever can reach %s may use this server: --auth-file and --public set limits", host)
    if open_browser:
        timer = threading.Timer(1.0, webbrowser.open, [address])
        timer.daemon = True
        timer.start()
    config = uvicorn.Config(
        app, host=host, port=port, http=Connection, log_level="warning", timeout_graceful_shutdown=1
    )
    _Server(config).run()
