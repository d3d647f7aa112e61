"""A target, methods and runs that need no torch: a run replays a recorded trace."""

from __future__ import annotations

import argparse
import asyncio
import copy
import re
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from decoders.draft.params import NoParams, param
from decoders.errors import UserError
from decoders.extra import entries_of
from decoders.trace.trace import Trace
from specviz.app import create_app
from specviz.pages import pages
from specviz.server.connection import Connection
from specviz.server.desk import Desk
from specviz.server.forms import PromptForm
from specviz.server.hosts import LOOPBACK, Hosts
from specviz.server.job import Job
from specviz.server.library import Library
from specviz.server.loader import Loader
from specviz.server.pool import SeatPool
from specviz.server.runner import Runner
from specviz.server.store import TraceStore
from specviz.server.users import Users

from . import recordings
from .replay import StubRun
from .waiting import WAIT_S, until


@dataclass(frozen=True)
class StubParams:
    k: int = param(10, "Draft length", "Tokens copied per draft.", low=1, high=128)
    theta: float | None = param(None, "Threshold", "Keep scores above it only.", low=-1.0, high=1.0, step=0.05)
    clip: bool = param(False, "Clip", "Cut at the end.")
    mode: str = param("max", "Aggregation", "How heads are joined.", choices=("max", "sum"))


@dataclass(frozen=True)
class StubLossyParams(StubParams):
    delta: float = param(0.1, "Threshold δ", "Accept above it.", low=0.0, high=1.0, step=0.01)


@dataclass(frozen=True)
class StubMethod:
    name: str
    title: str
    params: type = StubParams
    lossless: bool = True
    lacks: str | None = None
    signal: str = ""
    part: None = None
    paper: str = "A paper 2024"
    summary: str = "Copies what followed an earlier place."
    pooled: bool = False
    keeps: str = ""
    family: str = "copy"
    prompt: None = None

    def needs(self, target: Any, params: Any) -> SimpleNamespace:
        return SimpleNamespace(pool=self.pooled)

    def missing(self, target: Any, params: Any = None) -> str | None:
        return self.lacks


METHODS = {
    m.name: m
    for m in (
        StubMethod("plain", "Plain decoding", params=NoParams, summary="One token at a time.", family=""),
        StubMethod("pld", "PLD"),
        StubMethod("pld+h", "PLD+ (hidden states)"),
        StubMethod("casd", "CASD", params=StubLossyParams, lossless=False, pooled=True),
        StubMethod(
            "ppd", "PPD", family="heads", lacks="Prompt tokens are missing: make them with `specviz train ppd`."
        ),
    )
}


class StubTokenizer:
    """One token per character."""

    chat_template = None
    is_fast = True

    def __call__(self, text: str | list[str], **_: Any) -> dict[str, Any]:
        if isinstance(text, list):
            return {"input_ids": [[ord(c) for c in one] for one in text]}
        return {"input_ids": [ord(c) for c in text], "offset_mapping": [(i, i + 1) for i in range(len(text))]}


class StubTarget:
    name = key = "stub"
    device = SimpleNamespace(type="cpu")
    context_length = 2000
    tokenizer = StubTokenizer()
    info: ClassVar[dict[str, Any]] = {
        "name": "stub",
        "parameters": 5_300_000,
        "dtype": "float32",
        "device": "cpu",
        "packed": False,
        "context_length": 2000,
        "family": "llama",
        "layers": 2,
        "heads": 2,
        "hidden": 32,
        "vocab": 128,
    }

    engines = SimpleNamespace(pending="", engine="eager")
    shape = SimpleNamespace(unlike_llama=lambda *_: None, hidden=32, layers=2)

    def __init__(self) -> None:
        self.companions: dict[str, Any] = {}

    def reference_logits(self, *_: Any, **__: Any) -> Any:
        raise UserError("the stub has no logits")

    def session(self, *_: Any, **__: Any) -> Any:
        raise UserError("the stub has no forward")


TESTED = Hosts((*LOOPBACK, "testserver"))  # what Starlette's TestClient asks for


def annex_mounts(*arguments: str) -> list[Any]:
    """The annexes' additions to an app that is started with some arguments, as by ``specviz app``."""
    parser, modules = argparse.ArgumentParser(), [module for _, module in entries_of("app")]
    for module in modules:
        module.add(parser)
    args, _ = parser.parse_known_args(arguments)
    return [partial(module.mount, args=args) for module in modules]


def app_of(desk: Desk, users: Users | None = None, hosts: Hosts = TESTED, **more: Any) -> FastAPI:
    """The application, made inside a running loop (Gradio would otherwise make one and never close it)."""

    async def make() -> FastAPI:
        return create_app(desk=desk, users=users, hosts=hosts, **more)

    return in_thread(make)


def in_thread(make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine in a thread of its own: this one may have an event loop already (a browser's)."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(make())).result()


PORTS: list[int] = []  # of this process's servers so far; one that is free again is taken first


def listening() -> socket.socket:
    """A socket for a server; on the port of one that has ended, so that a browser still has the scripts from there."""
    for port in (*PORTS, 0):
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("127.0.0.1", port))
            found.listen(128)
        except OSError:
            found.close()
            continue
        if port == 0:
            PORTS.append(found.getsockname()[1])
        return found
    raise OSError("no port is free")


class Proxy:
    """An app under a path, as a proxy shows it that takes the path off; nothing else is answered."""

    def __init__(self, app: Any, path: str) -> None:
        self.app, self.path = app, path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            first, _, rest = scope["path"][1:].partition("/")
            scope = {**scope, "path": f"/{rest}" if first == self.path[1:] else "/outside/of/it"}
        await self.app(scope, receive, send)


class serving:
    """A real server on a free port, for the time of a with block; with a ``root_path`` behind a ``Proxy`` there."""

    def __init__(self, desk: Desk, users: Users | None = None, hosts: Hosts = TESTED, **more: Any) -> None:
        app: Any = app_of(desk, users, hosts, **more)
        if root_path := more.get("root_path"):
            app = Proxy(app, root_path)
        config = uvicorn.Config(app, http=Connection, log_level="error", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.socket = listening()
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)

    def __enter__(self) -> int:
        self.thread.start()
        until(lambda: self.server.started or not self.thread.is_alive(), "the server has started")
        assert self.server.started, "the server ended before it had started"
        return self.socket.getsockname()[1]

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(WAIT_S)
        self.socket.close()
        assert not self.thread.is_alive(), f"the server has not ended in {WAIT_S:.0f} s"


class StubDesk(Desk):
    """A desk whose runs replay ``whole()``; ``pause_s`` per step."""

    def __init__(
        self,
        whole: Callable[[], Trace] = recordings.chain,
        *,
        load: Callable[[], Any] | None = StubTarget,
        pause_s: float = 0.0,
        fail_at: int = -1,
        library: Library | None = None,
        gallery: tuple[Trace, ...] = (),
        pool: SeatPool | None = None,
    ) -> None:
        store = TraceStore()
        for number, trace in enumerate(gallery):
            trace.run["id"] = f"gallery-{number}"
            store.put(trace, kind="gallery", owner="*")
        loader = Loader(load, reason="Opened for viewing only.", name="stub")
        super().__init__(store, Runner(store, library, pool=pool), loader, methods=lambda: METHODS, pages=pages())
        self.whole, self.pause_s, self.fail_at, self.library = whole, pause_s, fail_at, library
        self.first = "gallery-0" if gallery else ""
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[Any] = []  # prompts of the runs

    def submit_text(self, text: str = "abc", owner: str = "", title: str = "") -> Job:
        """A run that is over."""
        job = self.submit(PromptForm("text", text=text), "pld", {}, {}, owner=owner, title=title)
        assert job.finished.wait(WAIT_S)
        return job

    def run_of(self, target: Any, prompt: Any, method: str, title: str, cancel: threading.Event, **_: Any) -> Any:
        self.asked.append(prompt)
        return StubRun(self.whole(), cancel, pause_s=self.pause_s, fail_at=self.fail_at, gate=self.gate)


def nothing_wrong(page: Any, port: int, *, schemes: str = "data|blob", said: Sequence[str] = ()) -> None:
    """Asserts that a browser's page asked nothing of other sites, and said nothing but what has one of ``said`` in it.

    Args:
        page: One that remembers (``page`` in ``tests/browser/conftest.py``).
        port: Of the server that it may ask.
        schemes: Of addresses that no network is needed for, with | in between.
        said: Parts of the console's lines that a test expects, such as ``"422"``.
    """
    foreign = [url for url in page.requests if not re.match(rf"(http://127\.0\.0\.1:{port}/|({schemes}):)", url)]
    problems = [text for text in page.problems if not any(part in text for part in said)]
    assert (foreign, problems) == ([], []), f"foreign: {foreign}; said: {problems}"


D = TypeVar("D", bound=Desk)


def start_desk(desk: D) -> D:
    """The desk, with its model."""
    desk.begin()
    assert desk.loader.wait(WAIT_S)
    return desk


@contextmanager
def at_work(desk: D) -> Iterator[D]:
    """A desk with its model, for the time of a with block."""
    try:
        yield start_desk(desk)
    finally:
        desk.end()


@contextmanager
def client_of(desk: Desk, users: Users | None = None, **options: Any) -> Iterator[TestClient]:
    """A client of the application of a desk, whose model is there; ``options`` are the client's."""
    with TestClient(app_of(desk, users), **options) as client:
        assert desk.loader.wait(WAIT_S)
        yield client


def gallery_desk(target: Any, runs: Mapping[str, Trace]) -> Desk:
    """A desk on a real target with copies of runs, by their ids, as its gallery; it opens on the first."""
    store = TraceStore()
    for key, trace in runs.items():
        shown = Trace.from_json(copy.deepcopy(trace.to_json()))
        shown.run["id"] = key
        store.put(shown, kind="gallery", owner="*")
    desk = Desk(store, Runner(store), Loader(lambda: target, name="tiny"), pages=pages())
    desk.first = next(iter(runs))
    return desk


def visiting(page: Any, port: int, tab: str) -> Iterator[Callable[..., Any]]:
    """For a fixture: opens a tab in a browser's page, at a width; nothing may fail or be asked of other sites."""

    def go(query: str = "", width: int = 1280) -> Any:
        page.set_viewport_size({"width": width, "height": 820})
        page.goto(f"http://127.0.0.1:{port}/?tab={tab}{query}")
        page.wait_for_selector(f".svp-{tab}[data-ready]")
        return page

    yield go
    nothing_wrong(page, port)
