"""Checks a trace of any origin: whole, bounded, of the right types, its references inside."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from .tables import MAX_COLUMNS, MAX_MORE_TABLES, TABLES, TERMS, TraceError, columns_of, may_be_named

MAX_CELLS = 20_000_000
MAX_STRING = 2_000
_BIGGEST = 2**53  # the largest whole number that a browser holds exactly
_TYPES: dict[str, set[type]] = {"int": {int}, "float": {float, int, type(None)}, "str": {str}, "bool": {bool}}
_TYPES["any"] = set().union(*_TYPES.values())
_WORDS = {"int": "whole numbers", "float": "numbers or null", "str": "text", "bool": "true or false"}
_WORDS["any"] = "numbers, text, true, false or null"
_ENUMS = {
    ("tokens", "kind"): {"prompt", "accepted", "bonus", "plain"},
    ("steps", "outcome"): {"full", "partial", "none", "plain"},
    ("nodes", "status"): {"root", "accepted", "rejected", "unreached"},
}
_RUN_TYPES: dict[str, type] = {
    "id": str, "title": str, "created": str, "complete": bool, "stop": str, "model": dict, "method": dict,
    "terms": list, "node_terms": list, "step_terms": list, "sampling": dict, "max_new_tokens": int,
    "prompt_length": int, "stop_ids": list,
    "versions": dict, "timings": dict, "metrics": dict, "metric_help": list, "error": str,
    "pool": dict, "compression": dict, "memory": dict, "reference": str, "attention": dict, "forced": bool,
    "origins": list,
}  # fmt: skip
_RUN_OPTIONAL = {
    "title", "node_terms", "step_terms", "stop_ids", "versions", "metrics", "metric_help", "error", "pool",
    "compression", "memory", "reference", "attention", "forced", "origins",
}  # fmt: skip
_METHOD_TYPES: dict[str, type] = {
    "name": str, "title": str, "paper": str, "summary": str, "lossless": bool, "params": dict, "controls": list,
    "code": dict,
}  # fmt: skip
_CODE_TYPES: dict[str, type] = {"drafts": str, "verifies": str}


class Recorded(Protocol):
    """What a check reads: the run's record, and its tables column by column."""

    run: dict[str, Any]
    tables: dict[str, dict[str, list[Any]]]


def check(trace: Recorded) -> None:
    """Raise TraceError, naming the first fault, unless the trace is whole: columns, types, ranges, cross-references.

    Vectorised: a trace of 2,000 steps and 60,000 candidates takes about 0.2 s.
    """
    check_run(trace.run)
    if len(more := [table for table in trace.tables if table not in TABLES]) > MAX_MORE_TABLES:
        raise TraceError(f"it has {len(more)} tables that are not known and {MAX_MORE_TABLES} are allowed")
    a = {table: _arrays(trace, table) for table in (*TABLES, *more)}
    if (cells := sum(column.size for columns in a.values() for column in columns.values())) > MAX_CELLS:
        raise TraceError(f"it has {cells:,} values and {MAX_CELLS:,} are allowed")
    _check_values(a)
    _check_tokens(trace.run["prompt_length"], a)
    _check_nodes(a)
    _check_pool(a)
    _check_rest(a)


def check_run(run: Any) -> None:
    """Raise TraceError unless ``run`` has what every view relies on; unknown keys are kept, but bounded."""
    if not isinstance(run, dict):
        raise TraceError("its run record is not an object")
    _bounded(run, "run", [20_000])
    _typed(run, "run", _RUN_TYPES, _RUN_OPTIONAL)
    if not re.fullmatch(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,79}", run["id"]):
        raise TraceError(f"run.id is {shown(run['id'])}; letters, digits and . _ + - are allowed, 80 at most")
    _typed(run["method"], "run.method", _METHOD_TYPES, set(_METHOD_TYPES) - {"name"})
    _typed(run["method"].get("code", {}), "run.method.code", _CODE_TYPES, set(_CODE_TYPES))
    _typed(run["model"], "run.model", {"name": str}, {"name"})
    for name in ("timings", "metrics"):
        for key, value in run.get(name, {}).items():
            if value is not None and type(value) not in (int, float):
                raise TraceError(f"run.{name}.{key} is {shown(value)}; a number or null is allowed")
    for declared in TERMS:
        keys = []
        for i, term in enumerate(run.get(declared, ())):
            if not isinstance(term, dict):
                raise TraceError(f"run.{declared}[{i}] is not an object")
            _typed(term, f"run.{declared}[{i}]", {"key": str, "label": str, "help": str}, {"label", "help"})
            keys.append(term["key"])
        if len(set(keys)) != len(keys):
            raise TraceError(f"run.{declared} names a number twice")
    for i, origin in enumerate(run.get("origins", ())):
        if not isinstance(origin, dict):
            raise TraceError(f"run.origins[{i}] is not an object")
        types = {"name": str, "letter": str, "label": str, "sentence": str, "outline": str, "hue": int}
        _typed(origin, f"run.origins[{i}]", types, set(types) - {"name"})
    for name in ("controls", "metric_help"):
        rows = run["method"].get("controls", []) if name == "controls" else run.get("metric_help", [])
        if not all(isinstance(row, dict) for row in rows):
            raise TraceError(f"{name} of the run holds something that is not an object")
    if not all(type(i) is int for i in run.get("stop_ids", [])):
        raise TraceError("run.stop_ids holds something that is not a token id")
    if run["max_new_tokens"] < 0 or run["prompt_length"] < 1:
        raise TraceError("run.max_new_tokens is below 0 or run.prompt_length below 1")


def _typed(record: dict[str, Any], where: str, types: Mapping[str, type], optional: set[str]) -> None:
    for key, kind in types.items():
        if key not in record:
            if key in optional:
                continue
            raise TraceError(f"{where}.{key} is missing")
        value = record[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise TraceError(f"{where}.{key} is {shown(value)}, which is not of the right type")


def _bounded(value: Any, where: str, left: list[int], depth: int = 0) -> None:
    """Free-form JSON inside the run record: depth, number of values and lengths stay small, numbers finite."""
    left[0] -= 1
    if left[0] < 0 or depth > 8:
        raise TraceError("its run record is too large or nested too deeply")
    if isinstance(value, dict):
        for key, item in value.items():
            _string(key, f"a name in {where}", 200)
            _bounded(item, f"{where}.{key[:40]}", left, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _bounded(item, where, left, depth + 1)
    elif isinstance(value, str):
        _string(value, where, 20_000)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise TraceError(f"{where} is not a finite number")
    elif isinstance(value, int):
        if abs(value) >= 2**64:
            raise TraceError(f"{where} is a number of more than 64 bits")
    elif value is not None:
        raise TraceError(f"{where} is a {type(value).__name__}, which JSON does not hold")


def _string(value: Any, where: str, limit: int) -> None:
    if not isinstance(value, str):
        raise TraceError(f"{where} is not text")
    if len(value) > limit:
        raise TraceError(f"{where} is {len(value):,} characters long; {limit:,} are allowed")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise TraceError(f"{where} holds half of a surrogate pair, which is no text") from None


def shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def as_float(value: Any) -> Any:
    return float(value) if type(value) is int and abs(value) <= _BIGGEST else value


def _arrays(trace: Recorded, table: str) -> dict[str, np.ndarray]:
    """The table's columns as arrays (None → nan, text as objects), types and lengths checked."""
    columns = trace.tables.get(table)
    if not isinstance(columns, dict):
        raise TraceError(f"its table {table} is missing")
    kinds = {column.name: column.type for column in columns_of(table, trace.run).values()}
    if missing := sorted(set(kinds) - set(columns)):
        raise TraceError(f"{table}.{missing[0]} is missing")
    if not 0 < len(columns) <= MAX_COLUMNS:
        raise TraceError(f"table {shown(table)} has {len(columns)} columns; 1 to {MAX_COLUMNS} are allowed")
    more = [name for name in columns if name not in kinds]
    if odd := [name for name in (table, *more) if not may_be_named(name)]:
        raise TraceError(f"{shown(odd[0])} is not the name of a table or column: a letter, then letters, digits, _")
    kinds |= dict.fromkeys(more, "any")
    lengths = {name: len(values) if isinstance(values, list) else -1 for name, values in columns.items()}
    first = next(iter(kinds))
    for name, length in lengths.items():
        if length < 0:
            raise TraceError(f"{table}.{name} is not a list")
        if length != lengths[first]:
            raise TraceError(f"{table}.{name} has {length:,} rows and {table}.{first} has {lengths[first]:,}")
    return {name: _array(f"{table}.{name}", kind, columns[name]) for name, kind in kinds.items()}


def _array(where: str, kind: str, values: list[Any]) -> np.ndarray:
    if wrong := set(map(type, values)) - _TYPES[kind]:
        row = next(i for i, v in enumerate(values) if type(v) in wrong)
        raise TraceError(f"{where}, row {row}, is {shown(values[row])}; {_WORDS[kind]} are allowed")
    if kind == "str":
        for text in set(values):
            _string(text, where, MAX_STRING)
        return np.array(values, dtype=object)
    if kind == "any":
        for one in set(map(type, values)):
            _array(where, one.__name__ if one is not type(None) else "float", [v for v in values if type(v) is one])
        return np.array(values, dtype=object)
    if kind == "int":
        try:
            array = np.array(values, dtype=np.int64)
        except OverflowError:
            array = np.array([_BIGGEST + 1])
        if array.size and (array.min() < -_BIGGEST or array.max() > _BIGGEST):
            raise TraceError(f"{where} holds a whole number beyond 2^53")
        return array
    if kind == "float":
        try:
            array = np.array(values, dtype=np.float64)
        except OverflowError:
            raise TraceError(f"{where} holds a number that is too large") from None
        for row in np.flatnonzero(~np.isfinite(array)):
            if values[row] is not None:
                raise TraceError(f"{where}, row {row}, is not a finite number; numbers or null are allowed")
        return array
    return np.array(values, dtype=bool)


def _refuse(bad: np.ndarray, where: str, values: np.ndarray, allowed: str) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        value = values[row].item() if isinstance(values[row], np.generic) else values[row]
        raise TraceError(f"{where}, row {row}, is {shown(value)}; allowed: {allowed}")


def _check_values(a: dict[str, dict[str, np.ndarray]]) -> None:
    """What one column says by itself, and references to pieces and steps."""
    ids = a["pieces"]["id"]
    _refuse(ids < 0, "pieces.id", ids, "0 or more")
    if len(np.unique(ids)) != len(ids):
        raise TraceError("pieces.id names a token twice")
    for row, text in enumerate(a["pieces"]["hex"]):
        if len(text) % 2 or not re.fullmatch("[0-9a-fA-F]*", text):
            raise TraceError(f"pieces.hex, row {row}, is {shown(text)}; two hexadecimal digits per byte are allowed")
    for table, name in (
        ("tokens", "id"), ("nodes", "token"), ("targets", "token"), ("probes", "token"), ("pool", "id"),
        ("plain", "id"), ("guesses", "token"),
    ):  # fmt: skip
        values = a[table][name]
        _refuse(~np.isin(values, ids), f"{table}.{name}", values, "the ids listed in pieces")
    for (table, name), allowed in _ENUMS.items():
        values = a[table][name]
        bad = np.fromiter((v not in allowed for v in values), bool, len(values))
        _refuse(bad, f"{table}.{name}", values, ", ".join(sorted(allowed)))
    for table, name in (
        ("tokens", "prob"), ("nodes", "prob"), ("targets", "prob"), ("probes", "prob"), ("guesses", "prob"),
        ("guesses", "draft_prob"), ("guesses", "residual"), ("attention", "weight"),
    ):  # fmt: skip
        share = a[table][name]
        _refuse((share < 0) | (share > 1.001), f"{table}.{name}", share, "0 to 1")
    for name in ("draft_ms", "verify_ms", "commit_ms", "elapsed_ms"):
        _refuse(a["steps"][name] < 0, f"steps.{name}", a["steps"][name], "0 or more")
    steps = len(a["steps"]["context"])
    for table in ("nodes", "targets", "candidates", "guesses", "attention", "probes"):
        step = a[table]["step"]
        _refuse((step < 0) | (step >= steps), f"{table}.step", step, f"0 to {steps - 1}")
        _refuse(np.diff(step, prepend=0) < 0, f"{table}.step", step, "rows in the order of the steps")


def _check_tokens(prompt_length: int, a: dict[str, dict[str, np.ndarray]]) -> None:
    """Every output token comes from a step, and the steps' counts add up to the output."""
    tokens, steps = a["tokens"], a["steps"]
    rows, count = len(tokens["id"]), len(steps["context"])
    if prompt_length > rows:
        raise TraceError(f"run.prompt_length is {prompt_length:,} and tokens has {rows:,} rows")
    for name in ("drafted", "depth", "accepted", "emitted"):
        _refuse(steps[name] < 0, f"steps.{name}", steps[name], "0 or more")
    _refuse(steps["bonus"] < -1, "steps.bonus", steps["bonus"], "a token id, or -1")
    _refuse(steps["depth"] > steps["drafted"], "steps.depth", steps["depth"], "no more than drafted")
    _refuse(steps["accepted"] > steps["depth"], "steps.accepted", steps["accepted"], "no more than depth")
    emitted = steps["accepted"] + (steps["bonus"] >= 0)
    _refuse(steps["emitted"] != emitted, "steps.emitted", steps["emitted"], "accepted, plus one where there is a bonus")
    context = prompt_length + np.concatenate([[0], np.cumsum(emitted)]).astype(np.int64)
    _refuse(steps["context"] != context[:-1], "steps.context", steps["context"], "the tokens committed before the step")
    if rows != context[-1]:
        raise TraceError(f"tokens has {rows:,} rows; the prompt and the steps' emitted tokens make {context[-1]:,}")
    owner = np.concatenate([np.full(prompt_length, -1), np.repeat(np.arange(count), emitted)])
    _refuse(tokens["step"] != owner, "tokens.step", tokens["step"], "the step that emitted it, -1 for the prompt")
    bad = (tokens["kind"] == "prompt") != (owner < 0)
    _refuse(bad, "tokens.kind", tokens["kind"], "prompt inside the prompt, and only there")
    _refuse(tokens["passage"] < -1, "tokens.passage", tokens["passage"], "a passage number, or -1")
    _refuse(tokens["rank"] < -1, "tokens.rank", tokens["rank"], "0 or more, -1 for the prompt")
    bad = (tokens["source"] < -1) | (tokens["source"] >= np.arange(rows))
    _refuse(bad, "tokens.source", tokens["source"], "an earlier position, or -1")
    last = steps["context"] + steps["accepted"]
    has = steps["bonus"] >= 0
    bad = has.copy()
    bad[has] = tokens["id"][last[has]] != steps["bonus"][has]
    _refuse(bad, "steps.bonus", steps["bonus"], "the last token that the step emitted, or -1")


def _check_nodes(a: dict[str, dict[str, np.ndarray]]) -> None:
    """Every step's tree is a tree, and its accepted path is what the step emitted."""
    nodes, steps, ids = a["nodes"], a["steps"], a["tokens"]["id"]
    count, step = len(steps["context"]), nodes["step"]
    sizes = np.bincount(step, minlength=count)
    _refuse(sizes != steps["drafted"] + 1, "steps.drafted", steps["drafted"], "one less than the step's rows in nodes")
    start = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
    row = np.arange(len(step))
    number = row - start[step]
    parent, depth, token = nodes["parent"], nodes["depth"], nodes["token"]
    root = number == 0
    bad = np.where(root, parent != -1, (parent < 0) | (parent >= number))
    _refuse(bad, "nodes.parent", parent, "a node before its child")
    above = np.where(root, row, start[step] + parent)
    _refuse(depth != np.where(root, 0, depth[above] + 1), "nodes.depth", depth, "one more than the parent's")
    deepest = np.zeros(count, dtype=np.int64)
    np.maximum.at(deepest, step, depth)
    _refuse(steps["depth"] != deepest, "steps.depth", steps["depth"], "the depth of the step's deepest node")
    order = np.lexsort((token, parent, step))
    twin = np.zeros(len(step), dtype=bool)
    same = [np.diff(v[order]) == 0 for v in (token, parent, step)]
    twin[order[1:]] = same[0] & same[1] & same[2]
    _refuse(twin, "nodes.token", token, "another token than its siblings")
    context = steps["context"][step]
    bad = (nodes["source"] < -1) | (nodes["source"] >= context)
    _refuse(bad, "nodes.source", nodes["source"], "an earlier position, or -1")
    _refuse(nodes["rank"] < -1, "nodes.rank", nodes["rank"], "0 or more, -1 for the root")
    status = nodes["status"]
    accepted = status == "accepted"
    _refuse((status == "root") != root, "nodes.status", status, "root for the first node of a step, and only there")
    _refuse(accepted & ~(accepted | root)[above], "nodes.status", status, "accepted only below an accepted node")
    found = np.bincount(step[accepted], minlength=count)
    _refuse(found != steps["accepted"], "steps.accepted", steps["accepted"], "the step's accepted nodes")
    committed = root | accepted
    expected = token.copy()
    at = context[committed] + depth[committed] - 1
    expected[committed] = ids[np.minimum(at, len(ids) - 1)]
    _refuse(token != expected, "nodes.token", token, "along the accepted path, the tokens of the output")


def _check_pool(a: dict[str, dict[str, np.ndarray]]) -> None:
    """Places in the pool are listed in the table pool."""
    place = a["pool"]["position"]
    _refuse(place < 0, "pool.position", place, "0 or more")
    if len(np.unique(place)) != len(place):
        raise TraceError("pool.position names a place twice")
    _refuse(a["pool"]["passage"] < 0, "pool.passage", a["pool"]["passage"], "0 or more")
    for table in ("tokens", "nodes", "candidates"):
        given = a[table]["pool"]
        _refuse((given != -1) & ~np.isin(given, place), f"{table}.pool", given, "a position listed in pool, or -1")


def _check_rest(a: dict[str, dict[str, np.ndarray]]) -> None:
    steps, candidates = a["steps"], a["candidates"]
    for table, name in (("targets", "node"), ("probes", "parent"), ("guesses", "node")):
        values = a[table][name]
        bad = (values < 0) | (values > steps["drafted"][a[table]["step"]])
        _refuse(bad, f"{table}.{name}", values, "a node of the step")
    at = a["attention"]["step"]
    probes = np.bincount(a["probes"]["step"], minlength=len(steps["context"]))
    node, drafted = a["attention"]["node"], steps["drafted"][at]
    _refuse((node < 0) | (node > drafted + probes[at]), "attention.node", node, "a node or probe of the step")
    _refuse(a["guesses"]["rank"] < 0, "guesses.rank", a["guesses"]["rank"], "0 or more")
    looks = a["attention"]
    _refuse(looks["layer"] < 0, "attention.layer", looks["layer"], "0 or more")
    _refuse(looks["head"] < -1, "attention.head", looks["head"], "a head, or -1 for their mean")
    end = steps["context"][at] + np.where(node > drafted, steps["accepted"][at], 0)
    bad = (looks["position"] < 0) | (looks["position"] >= end)
    _refuse(bad, "attention.position", looks["position"], "a position before the step, or (of a probe) accepted in it")
    context = steps["context"][candidates["step"]]
    position, length = candidates["position"], candidates["length"]
    pooled = candidates["pool"] >= 0
    bad = (position < np.where(pooled, -1, 0)) | (position >= context)
    _refuse(bad, "candidates.position", position, "a position before the step, or -1 for one that is in the pool alone")
    most = np.maximum(context, len(a["pool"]["position"]))
    _refuse((length < 0) | (length > most), "candidates.length", length, "0 to the tokens before the step")
    _refuse(candidates["rank"] < 0, "candidates.rank", candidates["rank"], "0 or more")
    would = candidates["would_accept"]
    _refuse((would < -1) | (would > length), "candidates.would_accept", would, "0 to its length, or -1")
    chosen = candidates["step"][candidates["chosen"]]
    if len(np.unique(chosen)) != len(chosen):
        raise TraceError("candidates.chosen marks two candidates of one step; a draft is copied from one at most")
