"""Hostile requests to every route of the app, Gradio's included: ``python -m tests.fuzz --requests 5000``.

The routes and what they take are read from the OpenAPI schemas of both applications, and the assistant's tools from its
own list. A request begins as what its route wants, with ids that the app has; then a part of it is bent: a value of
another type, ``NaN``, ``1e999``, half a surrogate pair, deep nesting, long and odd addresses, raw bytes for a body, a
content type that does not fit, a sender that leaves. Files are uploaded and opened by the page's own two events, and a
run that came of one is asked for by every route. It goes straight to the application, without a client that would mend
it. An answer of 5xx, an exception that nobody caught and one that the app logged as an error are failures.

The app is asked in four forms: of one's own, with accounts (by a user who is signed in), ``--public`` behind a proxy's
path, and with a real tiny model.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import re
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import huggingface_hub
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from starlette.routing import Mount

from decoders.errors import UserError
from specviz.server.guard import SESSION
from specviz.server.http import COOKIE
from specviz.server.limits import rules_for
from specviz.server.routes import FORMATS
from specviz.server.users import Users, hash_password, write_users

from . import recordings
from .hostile import BEGIN, BROWSER, MCP, MCP_HEADERS, Contents, Request, Route, files, multipart, requests
from .stubs import StubDesk, annex_mounts, app_of, gallery_desk
from .waiting import WAIT_S

ANSWER_S = 60.0  # an answer begins by then
STREAM_S, MOST_MESSAGES = 0.1, 3  # then a stream is left
HASH = hash_password("open sesame", cost=(2, 1, 1))
ID_FIELDS = ("id", "key", "name", "run", "trace", "method")  # of the app's own answers
MOST_IDS = 80
ANN, BEGUN = "session-of-ann", "session-of-an-assistant"
MOST_ASKED = re.compile(r"/(api|mcp|login|logout|gradio_api/(api|call|cancel|file|queue|reset|run|upload))\b")
OPENED = "/gradio_api/upload, then inspect/open"

# --- what there is to ask ---


def routes_of(app: FastAPI) -> list[Route]:
    """Every route of an application and of those mounted in it; some stand in no schema."""
    document = app.openapi()
    schemas = document.get("components", {}).get("schemas", {})
    described: dict[tuple[str, str], Route] = {}
    for template, methods in document["paths"].items():
        for method, about in methods.items():
            parts = [part for part in about.get("parameters", ()) if part["in"] == "query"]
            query = {part["name"]: part.get("schema", {}) for part in parts}
            content = about.get("requestBody", {}).get("content", {})
            body = next((part.get("schema", {}) for part in content.values()), None)
            described[method.upper(), template] = Route(method.upper(), template, query, body, schemas)
    routes = list(described.values())  # those of included routers stand here only
    for route in app.routes:
        if isinstance(route, Mount):
            if isinstance(route.app, FastAPI):
                routes += routes_of(route.app)
            continue
        template = getattr(route, "path_format", getattr(route, "path", ""))
        for method in sorted(getattr(route, "methods", None) or ("DELETE", "GET", "POST")):  # none: a piece of ASGI
            routes.append(described.get((method, template), Route(method, template)))
    return list({str(route): route for route in routes}.values())


def ids_in(answer: Any) -> Iterator[str]:
    """Ids and names in an answer."""
    for key, part in answer.items() if isinstance(answer, dict) else enumerate(answer):
        if isinstance(part, dict | list):
            yield from ids_in(part)
        elif isinstance(part, str) and key in ID_FIELDS and 0 < len(part) <= 40:
            yield part


# --- asking ---


@dataclass
class Answer:
    """An answer: its status (0: none came), body, headers, and the error that nobody caught."""

    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = None  # type: ignore[assignment]
    error: str = ""

    def json(self) -> Any:
        """The answer's JSON; an empty object where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return {}


async def answer_to(app: FastAPI, sent: Request) -> Answer:
    """The answer to a request; a stream is left soon."""
    path, _, query = sent.target.partition("?")
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": sent.method, "scheme": "http",
        "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.headers],
        "client": sent.client, "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
    messages, step = 0, -(-len(sent.body) // sent.pieces) or 1
    pieces = [sent.body[start : start + step] for start in range(0, len(sent.body), step)] or [b""]
    parts: list[dict[str, Any]] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    parts[-1] = {"type": "http.disconnect"} if sent.cut else {**parts[-1], "more_body": False}
    answer = Answer(headers={})
    started, over = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        if parts:
            return parts.pop(0)
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal messages
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
            started.set()
        answer.body += message.get("body", b"")
        messages += 1
        if messages > MOST_MESSAGES:
            over.set()

    asked = asyncio.ensure_future(app(scope, receive, send))
    for event, most_s in ((started, ANSWER_S), (over, STREAM_S)):
        waits = asyncio.ensure_future(event.wait())
        await asyncio.wait({asked, waits}, timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        event.set()
    asked.cancel()  # does nothing where the answer is whole
    await asyncio.wait({asked}, timeout=1)
    error = asked.exception() if asked.done() and not asked.cancelled() else None
    if error is not None:
        answer.error = "".join(traceback.format_exception(error)[-3:])
    elif not answer.status and not sent.cut:
        answer.error = f"no answer within {ANSWER_S:.0f} s"
    return answer


class ErrorLog(logging.Handler):
    """Errors that the app caught and logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(logging.Formatter().format(record))


class Form:
    """The app in one of its forms: ``label`` names it, ``known`` is what it has."""

    def __init__(self, label: str, desk: Any, users: Users | None = None, root: str = "") -> None:
        self.label, self.desk, self.users = label, desk, users
        self.app = app_of(desk, users, mounts=annex_mounts("--mcp"), root_path=root)
        self.known = Contents(session=ANN if users else "", mcp=BEGUN)
        self.session, self.begun = "", ""  # stand for ANN and BEGUN, so that requests are the same ones in each run

    async def send(self, sent: Request) -> Answer:
        """The answer to a request of a user who is signed in, and of an assistant whose session goes on."""
        if self.users is not None and not self.users.who(self.session):  # the last request signed out
            self.session = self.users.sign_in("ann", "open sesame", "")
        if sent.target.startswith(MCP) and BEGUN in dict(sent.headers).values():
            answer = await self.ask("POST", "/mcp", BEGIN, **dict(MCP_HEADERS))
            self.begun = answer.headers.get("mcp-session-id", "")  # none without the annex that has them
        stand = {ANN: self.session, BEGUN: self.begun}
        headers = (
            (name, re.sub(f"{ANN}|{BEGUN}", lambda found: stand[found[0]], value)) for name, value in sent.headers
        )
        return await answer_to(self.app, replace(sent, headers=tuple(headers)))

    async def ask(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        """The answer to a request that is as it should be."""
        cookie = f"{SESSION}={ANN}" if self.users else f"{COOKIE}={BROWSER}"
        sent = {"host": "127.0.0.1", "content-type": "application/json", "cookie": cookie, **headers}
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return await self.send(Request(method, target, tuple(sent.items()), data))

    async def learn(self) -> None:
        """Find what the app has: ids from every list, and the assistant's tools."""
        found: set[str] = set()
        for route in routes_of(self.app):
            if route.method == "GET" and route.template.startswith("/api/") and "{" not in route.template:
                found.update(ids_in((await self.ask("GET", route.template)).json() or {}))
        listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        answer = await self.ask("POST", MCP, listed, **dict(MCP_HEADERS), **{"mcp-session-id": BEGUN})
        tools = answer.json().get("result", {"tools": ()})
        others = tuple(sorted(found))[:: max(1, len(found) // MOST_IDS)]
        runs = tuple(row["id"] for row in self.desk.store.listing("*"))
        self.known = replace(self.known, runs=runs, others=others, tools=tuple(tools["tools"]))


class Fuzz:
    """Applications under test, and what they answered: ``seen[route][status]``, and the requests that broke one."""

    def __init__(self, folder: Path, model: bool = True) -> None:
        self.seen: dict[str, Counter[int]] = {}
        self.failures: list[tuple[str, Request, int, str]] = []
        self.logged = ErrorLog()
        write_users(folder / "users", {"ann": HASH})
        users = Users(folder / "users")
        no_limits = {"asks": "0", "runs": "0"}
        self.forms = []
        for label, accounts, root in (("own", None, ""), ("accounts", users, ""), ("public", None, "/specviz")):
            desk = StubDesk(gallery=(recordings.chain(), recordings.tree(), recordings.casd(), recordings.plain()))
            shared = {} if label == "own" else no_limits
            desk.keep_to(rules_for(public=label == "public", accounts=accounts is not None, overrides=shared))
            self.forms.append(Form(label, desk, accounts, root))
        if model:
            self.forms.append(Form("model", model_desk()))

    async def run(self, count: int, number: int, only: str = "") -> None:
        """``count`` requests, as many to every route (with ``only`` in its name); the same for the same ``number``."""
        asks = [(form, route) for form in self.forms for route in routes_of(form.app) if only in str(route)]
        opens = self.forms if only in OPENED else []
        share = count // max(1, len(asks) + len(FORMATS) * len(opens))
        logging.getLogger().addHandler(self.logged)
        try:
            async with contextlib.AsyncExitStack() as stack:
                for form in self.forms:
                    await stack.enter_async_context(form.app.router.lifespan_context(form.app))
                    await asyncio.to_thread(form.desk.loader.wait, WAIT_S)
                    await form.learn()
                for form in opens:
                    most = max(1, share * len(FORMATS) // 3)
                    await self.open_files(form, most, f"{number} {form.label}")
                left = max(0, count - sum(map(Counter.total, self.seen.values())))
                first = 1 if left >= len(asks) else 0  # every route once; then those that the page asks, three times
                weights = [3 if MOST_ASKED.match(route.template) else 1 for _, route in asks]
                ends = [(left - first * len(asks)) * end // sum(weights) for end in accumulate(weights, initial=0)]
                for (form, route), (begin, end) in zip(asks, pairwise(ends), strict=True):
                    share = first + end - begin
                    for sent in draw_values(requests(route, form.known), share, f"{number} {form.label} {route}"):
                        self.count(f"{form.label}: {route}", sent, await form.send(sent))
        finally:
            logging.getLogger().removeHandler(self.logged)

    async def open_files(self, form: Form, count: int, number: str) -> None:
        """Upload files and have each opened; then ask for what became of it."""
        route, kind = f"{form.label}: {OPENED}", "multipart/form-data; boundary=x"
        for data in draw_values(files(), count, number):
            sent = Request("POST", OPENED, (), data)
            body = multipart("a.spectrace", data)
            answer = await form.ask("POST", "/gradio_api/upload", body, **{"content-type": kind})
            if answer.status == 200:
                answer = await form.ask("POST", "/api/inspect/open", {"path": answer.json()[0]})
            self.count(route, sent, answer)
            key = answer.json().get("id") if answer.status == 200 else None
            if key is None:
                continue
            shown = [f"/api/traces/{key}", *(f"/api/traces/{key}/download?format={name}" for name in FORMATS)]
            shown += [f"/api/runs/difference?ids={key},{key}", f"/api/compare/numbers?ids={key}", f"/api/whatif/{key}",
                      f"/api/acceptance/judged/{key}", f"/api/servers/of/{key}", "/api/runs"]  # fmt: skip
            for target in shown:
                answer = await form.ask("GET", target)
                self.count(f"{form.label}: an opened file is shown", replace(sent, target=target), answer)
            for action in ("runs", "lengths", "judge"):
                answer = await form.ask("POST", f"/api/acceptance/{action}", {"ids": [key]})
                self.count(f"{form.label}: an opened file's acceptance", replace(sent, target=action), answer)

    def count(self, route: str, sent: Request, answer: Answer) -> None:
        """Note an answer, and whether it is a failure."""
        self.seen.setdefault(route, Counter())[answer.status] += 1
        error = answer.error or "".join(self.logged.errors)
        self.logged.errors.clear()
        if answer.status >= 500 or error:
            self.failures.append((route, sent, answer.status, error or answer.body[:500].decode("utf-8", "replace")))

    def table(self) -> str:
        """The count of each status, by route."""
        statuses = sorted({status for counts in self.seen.values() for status in counts})
        width = max(map(len, self.seen), default=0)
        lines = [f"{'route':{width}}" + "".join(f"{status:>6}" for status in statuses) + "   all"]
        for route, counts in sorted(self.seen.items()):
            row = "".join(f"{counts[status] or '·':>6}" for status in statuses)
            lines.append(f"{route:{width}}{row}{counts.total():>6}")
        total: Counter[int] = sum(self.seen.values(), Counter())
        lines.append(f"{'all':{width}}" + "".join(f"{total[status]:>6}" for status in statuses) + f"{total.total():>6}")
        return "\n".join(lines)


def model_desk() -> Any:
    """A desk with a tiny model of random weights and two runs of it."""
    from decoders import record
    from decoders.prompt.prompt import Prompt

    from .models import prompt_ids, tiny_target

    def pick(model: str, *_: Any) -> Any:
        raise UserError(f"{model!r} is not loaded: there is no other model here")

    target = tiny_target("qwen3")
    prompt = Prompt.from_ids(prompt_ids(3))
    runs = {name: record(target, prompt, name, {}, max_new_tokens=24) for name in ("plain", "pld+h")}
    desk = gallery_desk(target, {f"run-{k}": trace for k, trace in enumerate(runs.values())})
    desk.loader.pick = pick
    return desk


def draw_values(strategy: st.SearchStrategy[Any], count: int, number: str) -> list[Any]:
    """Values of a strategy, the same ones for the same ``number``."""
    values: list[Any] = []

    @seed(number)
    @settings(
        max_examples=max(1, count), database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def draw(value: Any) -> None:
        values.append(value)

    draw()
    while len(values) < count:  # there are no more that differ
        values.append(values[len(values) % max(1, len(values))])
    return values[:count]


def main(arguments: list[str] | None = None) -> int:
    """Send requests and print what came back; 1 where a server error was among them."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--route", default="", help="only routes with this in their name")
    parser.add_argument("--show", type=int, default=10, help="how many failures are shown whole")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPECVIZ_HOME"] = folder
        huggingface_hub.constants.HF_HUB_OFFLINE = True  # a model that is chosen is looked for here alone
        fuzz = Fuzz(Path(folder))
        asyncio.run(fuzz.run(asked.requests, asked.seed, asked.route))
    print(fuzz.table())
    for route, sent, status, error in fuzz.failures[: asked.show]:
        print(f"\n{route}: {status}\n  {sent}\n{error[-1500:]}")
    print(f"\n{len(fuzz.failures)} failures in {sum(map(Counter.total, fuzz.seen.values()))} requests")
    return 1 if fuzz.failures else 0


if __name__ == "__main__":
    sys.exit(main())
