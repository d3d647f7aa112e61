"""Hostile requests: what a route wants, bent at a part; and hostile files."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from specviz.server.guard import SESSION
from specviz.server.http import COOKIE

from . import recordings

LONG = 5000
NAMES = (
    "gallery-0", "gallery-1", "1-drafting", "pld", "run", "0", "-1", "%00", "..", "%2e%2e%2fx", "a/b", "*",
)  # fmt: skip
ODD_NAMES = (
    "x" * LONG, "x" * 300, "%F0%9F%90%88" * 300, "%ED%A0%80", "%ff%fe", "%0d%0aset-cookie:a=b", "a" * 256, "{what}",
    "%25s",
)  # fmt: skip
ODD_VALUES = (
    float("nan"), float("inf"), -float("inf"), 10**400, -(10**19), 2**63, 1e308, -0.0, "\ud800", "\x00", "a" * 20_000,
    "a" * 300, "~nobody-here/x", "/root/\x00",
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
MCP = "/mcp"
MCP_HEADERS = (("accept", "application/json, text/event-stream"), ("mcp-protocol-version", "2025-06-18"))
MESSAGES = ("initialize", "notifications/initialized", "tools/list", "ping", "resources/list", "", "no/such")
BEGIN = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a client", "version": "1"},
    },
}  # fmt: skip
BROWSER = "0123456789abcdef" * 2  # of a visitor's cookie
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "SPECVIZ")


@dataclass(frozen=True)
class Route:
    """A route of an application: method, template of the address, schemas of the query's values and of the body."""

    method: str
    template: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    schemas: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.method} {self.template}"


@dataclass(frozen=True)
class Contents:
    """Contents of an application: runs, ids of other things, its assistant's tools, and who may ask.

    ``session`` is the cookie of a user who is signed in, ``mcp`` the id of a session of the assistant's protocol.
    """

    runs: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    session: str = ""
    mcp: str = ""

    def ids(self) -> st.SearchStrategy[str]:
        """Ids that lead to something, of runs as often as of all others."""
        return st.one_of(st.sampled_from(self.runs or NAMES), st.sampled_from(self.others or NAMES))


@dataclass(frozen=True)
class Request:
    """A request as it reaches the application; ``target`` is the address with its query, percent-encoded.

    Its body comes in ``pieces``; where it is ``cut``, the sender is gone before the last one.
    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    client: tuple[str, int] | None = ("127.0.0.1", 1)
    pieces: int = 1
    cut: bool = False

    def __str__(self) -> str:
        shown = self.body if len(self.body) <= 300 else self.body[:300] + b"..."
        return f"{self.method} {self.target[:200]} {dict(self.headers)} {shown!r}"


# --- JSON ---


def fitting(
    schema: Mapping[str, Any], schemas: Mapping[str, Any], known: Contents, depth: int = 0
) -> st.SearchStrategy[Any]:
    """JSON that fits a schema, more or less; texts are often ids that are ``known``, or a file's."""

    def inner(part: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        return fitting(part, schemas, known, depth + 1)

    if "$ref" in schema:
        return inner(schemas.get(schema["$ref"].rpartition("/")[2], {}))
    if choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return st.one_of([inner(choice) for choice in choices])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if depth > 6:
        return st.none()
    if kind == "object" or "properties" in schema:
        needed, parts = schema.get("required", ()), schema.get("properties", {})
        values = {name: inner(part) for name, part in parts.items()}
        optional = {name: value for name, value in values.items() if name not in needed}
        return st.fixed_dictionaries({name: values[name] for name in needed if name in values}, optional=optional)
    if kind == "array":
        return st.lists(inner(schema.get("items", {})), max_size=3)
    ids = known.ids()
    simple: dict[Any, st.SearchStrategy[Any]] = {
        "string": st.one_of(ids, ids, st.sampled_from(NAMES), st.text(max_size=12), texts()),
        "integer": st.one_of(st.integers(0, 9), st.integers(-3, 70)),
        "number": st.floats(0, 2),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return simple.get(kind, st.one_of(ids, st.sampled_from((1, {}, [], None))))


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
def bend(draw: st.DrawFn, value: Any) -> Any:
    """JSON with a part of it replaced by one that does not fit."""
    odd = draw(st.sampled_from(ODD_VALUES))
    found = list(places(value))
    value = replace(value, found[draw(st.integers(0, len(found) - 1))], odd)
    if isinstance(value, dict) and draw(st.booleans()):
        value = {**value, draw(st.sampled_from(("", "\ud800", "data", "event_data", "id"))): odd}
    return value


@st.composite
def bodies(draw: st.DrawFn, route: Route, known: Contents) -> bytes:
    """JSON that fits, or fits but for a part, or lacks parts, or bytes that are no JSON."""
    how = draw(st.sampled_from(("fits", "fits", "bent", "bent", "bent", "lacks", "raw", "cut")))
    if how == "raw":
        return draw(st.one_of(st.sampled_from(RAW_BODIES), st.binary(max_size=60)))
    value = draw(messages(known) if route.template == MCP else fitting(route.body or {}, route.schemas, known))
    if how == "bent":
        value = draw(bend(value))
    if how == "lacks" and isinstance(value, dict):
        value = {name: part for name, part in value.items() if draw(st.booleans())}
    text = json.dumps(value).encode()  # NaN and Infinity stay as they are, and so do halves of surrogate pairs
    return text[: len(text) // 2] if how == "cut" else text


@st.composite
def messages(draw: st.DrawFn, known: Contents) -> Any:
    """A message of the assistant's protocol: mostly a call of a tool."""
    method = draw(st.sampled_from(("tools/call",) * 6 + MESSAGES))
    about: dict[str, Any] = dict(BEGIN["params"]) if method == "initialize" else {}
    if method == "tools/call" and known.tools:
        tool = draw(st.sampled_from(known.tools))
        schema = tool["inputSchema"]
        about = {"name": tool["name"], "arguments": draw(fitting(schema, schema.get("$defs", {}), known))}
    message = {"jsonrpc": "2.0", "id": draw(st.integers(0, 9)), "method": method, "params": about}
    return draw(st.sampled_from((message,) * 6 + ([message], {**message, "id": None}, {**message, "jsonrpc": "1.0"})))


# --- files ---


@cache
def samples() -> tuple[bytes, ...]:
    """Files as users open them: recorded runs, servers' answers and logs, prompt files, the heads of checkpoints."""
    kinds = (recordings.chain, recordings.casd, recordings.plain, recordings.ppd, recordings.quote)
    runs = (*(kind() for kind in kinds), recordings.tree(), recordings.glide())
    here = Path(__file__).parent
    folders = (*here.parent.glob("specviz/extras/*/tests/samples"), here.parent / "assets/examples")
    paths = sorted(path for folder in folders for path in folder.rglob("*"))
    safetensors = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    others = (
        b"", b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, len(safetensors).to_bytes(8, "little") + safetensors + b"\x00" * 4,
        b"\x80\x04]q\x00.", b"\x1f\x8b\x08\x00", b"PK\x05\x06" + b"\x00" * 18, b"version https://git-lfs.github.com/spec/v1\n",
        b'{"prompt": "a"}\n{"prompt": 1}\n', b"prompt,id\r\n=1+1,a\r\n", b"question_id\n",
    )  # fmt: skip
    texts = (data[:200_000] for path in paths if path.is_file() for data in _contents(path))
    return (*map(recordings.save_trace, runs), *texts, *others)


def _contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file; of an archive those of its files."""
    if path.suffix != ".xz":
        yield path.read_bytes()
        return
    with tarfile.open(path) as packed:
        for member in packed:
            file = packed.extractfile(member)
            assert file is not None
            yield file.read()


def texts() -> st.SearchStrategy[str]:
    """A file as text, or the beginning of one."""
    given = [data.decode("utf-8", "replace")[:20_000] for data in samples() if not data.startswith(b"PK")]
    return st.builds(lambda text, length: text[:length], st.sampled_from(given), st.sampled_from((50, 1000, 20_000)))


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file that is as it should be, or bent: its JSON, its bytes, its encoding, its length."""
    data = draw(st.sampled_from(samples()))
    how = draw(st.sampled_from(("whole", "bent", "bent", "bent", "bent", "bytes", "cut", "twice", "utf-16", "zipped")))
    if how == "bent" and data.startswith(b"PK\x03"):
        return draw(bend_zip(data))
    if how == "bent":
        return draw(bend_lines(data))
    if how == "bytes" and data:
        at, byte = draw(st.integers(0, len(data) - 1)), draw(st.integers(0, 255))
        return data[:at] + bytes([byte]) + data[at + 1 :]
    if how == "cut":
        return data[: draw(st.integers(0, len(data)))]
    if how == "utf-16":
        return data.decode("latin-1").encode("utf-16")
    return pack_zip({"trace.json": data}) if how == "zipped" else data * 2 if how == "twice" else data


@st.composite
def bend_lines(draw: st.DrawFn, data: bytes) -> bytes:
    """Text of which a line, or the whole where that is one JSON value, has another part."""
    text = data.decode("utf-8", "replace")
    lines = [text] if text.lstrip()[:1] in ("{", "[") and text.count("\n{") == 0 else text.split("\n")
    number = draw(st.integers(0, len(lines) - 1))
    head, sign, line = lines[number].partition("data: ") if "data: " in lines[number] else ("", "", lines[number])
    try:
        line = json.dumps(draw(bend(json.loads(line))))
    except (ValueError, RecursionError):
        words = line.split(" ")
        words[draw(st.integers(0, len(words) - 1))] = str(draw(st.sampled_from(ODD_VALUES)))[:LONG]
        line = " ".join(words)
    lines[number] = head + sign + line
    return "\n".join(lines).encode("utf-8", "replace")


@st.composite
def bend_zip(draw: st.DrawFn, data: bytes) -> bytes:
    """A recorded run in whose file a value is another, a cell or a whole column, or a part is not there."""
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    name = draw(st.sampled_from(("trace.json",) * 3 + tuple(parts)))
    if draw(st.integers(0, 9)) == 0:
        del parts[name]
        return pack_zip(parts)
    value = json.loads(parts[name])
    if draw(st.integers(0, 9)) == 0 and name != "trace.json":  # all of a table's rows: their columns stay equally long
        value = {key: column[:-1] for key, column in value.items()}
    else:
        value = draw(bend(value))
    parts[name] = json.dumps(value).encode()
    return pack_zip(parts)


def pack_zip(parts: Mapping[str, bytes]) -> bytes:
    """A zip of some parts."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in parts.items():
            packed.writestr(name, data)
    return file.getvalue()


def multipart(name: str, data: bytes) -> bytes:
    """A form with one file."""
    head = f'--x\r\ncontent-disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
    return head.encode("utf-8", "surrogatepass") + data + b"\r\n--x--\r\n"


def uploads() -> st.SearchStrategy[bytes]:
    """Forms with a file under any name."""
    names = st.sampled_from(("a.txt", "", "../a", "\x00", "x" * 300, "\ud800", "a/b", "é", "a.spectrace"))
    return st.builds(multipart, names, st.one_of(files(), st.binary(max_size=20)))


@st.composite
def fields(draw: st.DrawFn, route: Route) -> bytes:
    """A route's form fields, or no field at all."""
    value = draw(fitting(route.body or {}, route.schemas, Contents()))
    names = list(value) if isinstance(value, dict) else draw(st.lists(st.sampled_from(FIELDS), max_size=4))
    parts = [f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{draw(st.sampled_from(NAMES))}\r\n'
             for name in names]  # fmt: skip
    return ("".join(parts) + draw(st.sampled_from(("--x--\r\n", "--x", "")))).encode("utf-8", "surrogatepass")


# --- requests ---


@st.composite
def requests(draw: st.DrawFn, route: Route, known: Contents) -> Request:
    """A request to a route of an application that has what is ``known``."""
    odd = st.one_of(st.sampled_from(NAMES), st.sampled_from(ODD_NAMES), st.text(max_size=9).map(quote_text))
    names = st.one_of(known.ids(), known.ids(), odd)
    target = ""
    for part in route.template.split("{"):
        name, closed, rest = part.partition("}")
        target += (draw(names) + rest) if closed else name
    if draw(st.integers(0, 19)) == 0:
        target = draw(st.sampled_from(("/", "//", "/./", "/%00", ""))) + target.strip("/") + draw(names)
    values = st.one_of(names, st.sampled_from(ODD_VALUES).map(lambda value: quote_text(str(value)[:LONG])))
    asked = []
    for name, schema in route.query.items():
        if draw(st.booleans()):
            fit = fitting(schema, route.schemas, known).map(lambda value: quote_text(str(value)[:LONG]))
            asked.append(f"{name}={draw(st.one_of(fit, values))}")
    if draw(st.integers(0, 9)) == 0:
        asked.append(draw(st.sampled_from(("&&", "=", "%", "a[]=1", "tab=%3F", "x" * LONG))))
    target += "?" + "&".join(asked) if asked else ""
    method = route.method if draw(st.integers(0, 9)) else draw(st.sampled_from(METHODS))
    few = draw(st.sampled_from((0, 2)))
    headers = [("host", "127.0.0.1"), *draw(st.lists(st.sampled_from(ODD_HEADERS), max_size=few))]
    if known.session and draw(st.integers(0, 9)):
        headers.append(("cookie", f"{SESSION}={known.session}"))
    elif draw(st.booleans()):
        headers.append(("cookie", f"{COOKIE}={BROWSER}"))
    if route.template == MCP:
        headers += [header for header in (*MCP_HEADERS, ("mcp-session-id", known.mcp)) if draw(st.integers(0, 9))]
    body = b""
    if method not in ("GET", "HEAD", "OPTIONS") or draw(st.integers(0, 9)) == 0:
        kind = "application/json" if draw(st.integers(0, 4)) else draw(st.sampled_from(TYPES))
        upload = route.template.endswith("/upload")
        if draw(st.integers(0, 3)) if upload else draw(st.integers(0, 7)) == 0:
            kind = "multipart/form-data; boundary=x"
            body = draw(st.one_of(uploads(), fields(route)) if upload else fields(route))
        else:
            body = draw(bodies(route, known))
        headers.append(("content-type", kind))
    clients = (("127.0.0.1", 1),) * 4 + (None, (f"10.0.0.{draw(st.integers(0, 255))}", 9), ("", 0), ("::1%eth0", 70000))
    pieces, cut = draw(st.sampled_from(((1, False),) * 6 + ((3, False), (2, True))))
    return Request(method, target or "/", tuple(headers), body, draw(st.sampled_from(clients)), pieces, cut)


def quote_text(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="/")
