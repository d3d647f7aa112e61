"""Hostile requests to every route of the app, Gradio's included: ``python -m tests.fuzz --requests 3000``.

The routes and what they take are read from the OpenAPI schemas of both applications. A request begins as what its route
wants; then a part of it is bent: a value of another type, ``NaN``, ``1e999``, half a surrogate pair, deep nesting, long
and odd addresses, raw bytes for a body, a content type that does not fit. It goes straight to the application, without
a client that would mend it. An answer of 5xx, or an exception that nobody caught, is a failure.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from starlette.routing import Mount

from specviz.server.guard import SESSION
from specviz.server.http import COOKIE
from specviz.server.limits import rules_for
from specviz.server.users import Users, hash_password, write_users

from . import synthetic
from .stubs import StubDesk, app_of
from .waiting import WAIT_S

ANSWER_S = 60.0  # an answer begins by then
STREAM_S, MOST_MESSAGES = 0.1, 3  # then a stream is left
HASH = hash_password("open sesame", cost=(2, 1, 1))

LONG = 5000
NAMES = (
    "gallery-0", "gallery-1", "1-drafting", "pld", "run", "0", "-1", "%00", "..", "%2e%2e%2fx", "a/b", "*",
)  # fmt: skip
ODD_NAMES = (
    "x" * LONG, "%F0%9F%90%88" * 300, "%ED%A0%80", "%ff%fe", "%0d%0aset-cookie:a=b", "a" * 256, "{what}", "%25s",
)  # fmt: skip
ODD_VALUES = (
    float("nan"), float("inf"), -float("inf"), 10**400, -(10**19), 2**63, 1e308, -0.0, "\ud800", "\x00", "a" * 20_000,
    "\udfff\ud800", "‮", "=1+1", "../../etc/passwd", True, None, [], {}, [[]], {"": {}}, {"a": float("nan")},
    {"\ud800": 1}, [None] * 600, "NaN", -1, 0, 1.5, "", "gallery-0",
)  # fmt: skip
RAW_BODIES = (
    b"", b"{", b"[" * 100_000, b'{"a":' * 20_000, b"NaN", b"1e999", b'"\\ud800"', b'{"id": 1e999}', b"\xff\xfe\x00",
    b"\xef\xbb\xbf{}", b"null", b"[]", b"1" * 5000, b'{"data": [NaN]}', b"--x\r\n\r\n--x--\r\n", b"a=1&a=%ff&=",
    '{"id": "ä"}'.encode("utf-16"), b'{"id": "\xe4"}', b"\x1f\x8b\x08\x00",
)  # fmt: skip
TYPES = (
    "application/json", "application/json; charset=utf-16", "application/json;charset=\xff", "text/plain", "", "json",
    "multipart/form-data", "multipart/form-data; boundary=x", "multipart/form-data; boundary=" + "x" * 300,
    "application/x-www-form-urlencoded", "application/octet-stream", "text/html; charset=no-such",
)  # fmt: skip
ODD_HEADERS = (
    ("cookie", "a"), ("cookie", f"{COOKIE}=" + "x" * 9000), ("cookie", f'{COOKIE}="\\777"; {SESSION}=\xff'),
    ("content-length", "-1"), ("content-length", "9" * 30), ("content-length", "x"), ("accept-encoding", "gzip;q=\xff"),
    ("last-event-id", "9" * 40), ("last-event-id", "²"), ("range", "bytes=9-1"), ("range", "bytes=-999999999999999"),
    ("if-none-match", "\xff"), ("if-modified-since", "never"), ("host", "\xff"), ("host", "a:b:c"), ("origin", "null"),
    ("referer", "http://[::1"), ("x-forwarded-host", "a b"), ("x-forwarded-proto", "\xff"), ("accept-language", "\xff"),
    ("sec-fetch-site", "cross-site"), ("sec-fetch-site", "\xff"), ("origin", "http://127.0.0.1"), ("origin", "\xff://"),
    ("host", "x/login?"), ("host", "[::"), ("x-forwarded-host", "a/b"), ("x-forwarded-for", "\xff"),
    ("sec-fetch-mode", "navigate"), ("forwarded", "host=x"), ("x-forwarded-prefix", "/\xff"), ("te", "\xff"),
    ("x-gradio-user", "\xff"), ("authorization", "é"),
)  # fmt: skip
FIELDS = ("component_id", "fn_name", "session_hash", "data", "fn_index", "file", "files", "name")  # of forms
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "SPECVIZ")


@dataclass(frozen=True)
class Route:
    """A route of an application: method, template of the address, names in the query, and the body's schema."""

    method: str
    template: str
    query: tuple[str, ...] = ()
    body: Mapping[str, Any] | None = None
    schemas: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.method} {self.template}"


@dataclass(frozen=True)
class Request:
    """A request as it reaches the application; ``target`` is the address with its query, percent-encoded."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def __str__(self) -> str:
        shown = self.body if len(self.body) <= 300 else self.body[:300] + b"..."
        return f"{self.method} {self.target[:200]} {dict(self.headers)} {shown!r}"


# --- what there is to ask ---


def routes_of(app: FastAPI) -> list[Route]:
    """Every route of an application and of those mounted in it; some stand in no schema."""
    document = app.openapi()
    schemas = document.get("components", {}).get("schemas", {})
    described: dict[tuple[str, str], Route] = {}
    for template, methods in document["paths"].items():
        for method, about in methods.items():
            names = tuple(one["name"] for one in about.get("parameters", ()) if one["in"] == "query")
            content = about.get("requestBody", {}).get("content", {})
            body = next((one.get("schema", {}) for one in content.values()), None)
            described[method.upper(), template] = Route(method.upper(), template, names, body, schemas)
    routes = list(described.values())  # those of included routers stand here only
    for route in app.routes:
        if isinstance(route, Mount):
            if isinstance(route.app, FastAPI):
                routes += routes_of(route.app)
            continue
        template = getattr(route, "path_format", getattr(route, "path", ""))
        for method in sorted(getattr(route, "methods", None) or ()):
            routes.append(described.get((method, template), Route(method, template)))
    return list({str(route): route for route in routes}.values())


# --- requests ---


def fitting(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """JSON that fits a schema, more or less."""
    if "$ref" in schema:
        return fitting(schemas.get(schema["$ref"].rpartition("/")[2], {}), schemas, depth + 1)
    if choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return st.one_of([fitting(one, schemas, depth + 1) for one in choices])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if depth > 6:
        return st.none()
    if kind == "object" or "properties" in schema:
        needed, parts = schema.get("required", ()), schema.get("properties", {})
        values = {name: fitting(part, schemas, depth + 1) for name, part in parts.items()}
        optional = {name: value for name, value in values.items() if name not in needed}
        return st.fixed_dictionaries({name: values[name] for name in needed if name in values}, optional=optional)
    if kind == "array":
        return st.lists(fitting(schema.get("items", {}), schemas, depth + 1), max_size=3)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        "string": st.one_of(st.sampled_from(NAMES), st.text(max_size=12)),
        "integer": st.one_of(st.integers(0, 9), st.integers(-3, 70)),
        "number": st.floats(0, 2),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return simple.get(kind, st.sampled_from(("gallery-0", 1, {}, [], None)))


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The address of every part of a JSON value."""
    yield here
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(part, (*here, key))


def replace(value: Any, place: tuple[Any, ...], part: Any) -> Any:
    """``value`` with another part at a place."""
    if not place:
        return part
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = replace(value[place[0]], place[1:], part)
    return copy


@st.composite
def bodies(draw: st.DrawFn, route: Route) -> bytes:
    """JSON that fits, or fits but for a part, or lacks parts, or bytes that are no JSON."""
    how = draw(st.sampled_from(("fits", "bent", "bent", "bent", "lacks", "raw", "cut")))
    if how == "raw":
        return draw(st.one_of(st.sampled_from(RAW_BODIES), st.binary(max_size=60)))
    value = draw(fitting(route.body or {}, route.schemas))
    if how == "bent":
        odd = draw(st.sampled_from(ODD_VALUES))
        value = replace(value, draw(st.sampled_from(list(places(value)))), odd)
        if isinstance(value, dict) and draw(st.booleans()):
            value = {**value, draw(st.sampled_from(("", "\ud800", "data", "event_data", "id"))): odd}
    if how == "lacks" and isinstance(value, dict):
        value = {name: part for name, part in value.items() if draw(st.booleans())}
    text = json.dumps(value).encode()  # NaN and Infinity stay as they are, and so do halves of surrogate pairs
    return text[: len(text) // 2] if how == "cut" else text


def multipart(name: str, data: bytes) -> bytes:
    """A form with one file."""
    head = f'--x\r\ncontent-disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
    return head.encode("utf-8", "surrogatepass") + data + b"\r\n--x--\r\n"


def uploads() -> st.SearchStrategy[bytes]:
    names = st.sampled_from(("a.txt", "", "../a", "\x00", "x" * 300, "\ud800", "a/b", "é"))
    return st.builds(multipart, names, st.binary(max_size=20))


@st.composite
def fields(draw: st.DrawFn, route: Route) -> bytes:
    """A route's form fields, or no field at all."""
    value = draw(fitting(route.body or {}, route.schemas))
    names = list(value) if isinstance(value, dict) else draw(st.lists(st.sampled_from(FIELDS), max_size=4))
    parts = [f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{draw(st.sampled_from(NAMES))}\r\n'
             for name in names]  # fmt: skip
    return ("".join(parts) + draw(st.sampled_from(("--x--\r\n", "--x", "")))).encode("utf-8", "surrogatepass")


@st.composite
def requests(draw: st.DrawFn, route: Route, session: str) -> Request:
    """A request to a route. ``session``: the cookie of somebody who is signed in, or ""."""
    names = st.one_of(st.sampled_from(NAMES), st.sampled_from(ODD_NAMES), st.text(max_size=9).map(_quote))
    target = ""
    for part in route.template.split("{"):
        name, closed, rest = part.partition("}")
        target += (draw(names) + rest) if closed else name
    if draw(st.integers(0, 19)) == 0:
        target = draw(st.sampled_from(("/", "//", "/./", "/%00", ""))) + target.strip("/") + draw(names)
    values = st.one_of(names, st.sampled_from(ODD_VALUES).map(lambda odd: _quote(str(odd)[:LONG])))
    asked = [f"{name}={draw(values)}" for name in route.query if draw(st.booleans())]
    if draw(st.integers(0, 9)) == 0:
        asked.append(
            draw(
                st.sampled_from(("&&", "=", "%", "a[]=1", "tab=\ud800".encode("utf-8", "replace").decode(), "x" * LONG))
            )
        )
    target += "?" + "&".join(asked) if asked else ""
    method = route.method if draw(st.integers(0, 9)) else draw(st.sampled_from(METHODS))
    headers = [("host", "127.0.0.1"), *draw(st.lists(st.sampled_from(ODD_HEADERS), max_size=2))]
    if session and draw(st.integers(0, 9)):
        headers.append(("cookie", f"{SESSION}={session}"))
    body = b""
    if method not in ("GET", "HEAD", "OPTIONS") or draw(st.integers(0, 9)) == 0:
        kind = "application/json" if draw(st.integers(0, 4)) else draw(st.sampled_from(TYPES))
        upload = route.template.endswith("/upload")
        if draw(st.integers(0, 1 if upload else 7)) == 0:
            kind = "multipart/form-data; boundary=x"
            body = draw(st.one_of(uploads(), fields(route)) if upload else fields(route))
        else:
            body = draw(bodies(route))
        headers.append(("content-type", kind))
    return Request(method, target or "/", tuple(headers), body)


def _quote(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="/")


# --- asking ---


async def answer_to(app: FastAPI, sent: Request) -> tuple[int, str]:
    """The status of an answer (0: none came), and the error that nobody caught; a stream is left soon."""
    path, _, query = sent.target.partition("?")
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": sent.method, "scheme": "http",
        "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.headers],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
    status, messages, begun = 0, 0, False
    started, over = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        nonlocal begun
        if not begun:
            begun = True
            return {"type": "http.request", "body": sent.body, "more_body": False}
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status, messages
        if message["type"] == "http.response.start":
            status = message["status"]
            started.set()
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
    if not status:
        return 0, f"no answer within {ANSWER_S:.0f} s"
    error = asked.exception() if asked.done() and not asked.cancelled() else None
    return status, "" if error is None else "".join(traceback.format_exception(error)[-3:])


class Fuzz:
    """Applications under test, and what they answered: ``seen[route][status]``, and the requests that broke one."""

    def __init__(self, folder: Path) -> None:
        self.seen: dict[str, Counter[int]] = {}
        self.failures: list[tuple[str, Request, int, str]] = []
        write_users(folder / "users", {"ann": HASH})
        users = Users(folder / "users")
        self.session = users.sign_in("ann", "open sesame", "")
        self.apps = []
        for accounts in (None, users):
            desk = StubDesk(gallery=(synthetic.chain(), synthetic.tree()))
            desk.keep_to(rules_for(public=False, accounts=False))
            self.apps.append((app_of(desk, accounts), self.session if accounts else ""))

    async def run(self, count: int, number: int, only: str = "") -> None:
        """``count`` requests, as many to every route (with ``only`` in its name); the same for the same ``number``."""
        asks = []
        for app, session in self.apps:
            routes = [one for one in routes_of(app) if not session or one.template in ("/login", "/logout")]
            asks += [(app, route, session) for route in routes if only in str(route)]
        async with contextlib.AsyncExitStack() as stack:
            for app, _ in self.apps:
                await stack.enter_async_context(app.router.lifespan_context(app))
                await asyncio.to_thread(app.state.desk.loader.wait, WAIT_S)
            for k, (app, route, session) in enumerate(asks):
                share = count // len(asks) + (k < count % len(asks))
                for sent in draw_requests(route, session, share, number + k):
                    status, error = await answer_to(app, sent)
                    self.seen.setdefault(str(route), Counter())[status] += 1
                    if status >= 500 or error or not status:
                        self.failures.append((str(route), sent, status, error))

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


def draw_requests(route: Route, session: str, count: int, number: int) -> list[Request]:
    """Requests to a route, the same ones for the same ``number``."""
    made: list[Request] = []

    @seed(number)
    @settings(
        max_examples=max(1, count), database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(requests(route, session))
    def draw(sent: Request) -> None:
        made.append(sent)

    draw()
    while len(made) < count:  # there are no more that differ
        made.append(made[len(made) % max(1, len(made))])
    return made[:count]


def main(arguments: list[str] | None = None) -> int:
    """Send requests and print what came back; 1 where a server error was among them."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--route", default="", help="only routes with this in their name")
    parser.add_argument("--show", type=int, default=10, help="how many failures are shown whole")
    asked = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(Path(folder))
        asyncio.run(fuzz.run(asked.requests, asked.seed, asked.route))
    print(fuzz.table())
    for route, sent, status, error in fuzz.failures[: asked.show]:
        print(f"\n{route}: {status}\n  {sent}\n{error[:1500]}")
    print(f"\n{len(fuzz.failures)} failures in {sum(map(Counter.total, fuzz.seen.values()))} requests")
    return 1 if fuzz.failures else 0


if __name__ == "__main__":
    sys.exit(main())
