"""Two outputs judged by what a program reads in them: tool calls, or JSON.

A near tie may change one token of an argument. Users of tools ask whether the call is the same, not the bytes: equal
names and equal arguments, in any spelling of JSON, are the same call. Read are whole JSON texts, fenced ones, the tags
``<tool_call>`` (Hermes, Qwen) and ``[TOOL_CALLS]`` (Mistral), Llama's ``<|python_tag|>`` and Python calls in a list
(``[f(a=1)]``, Llama 3.2 and 4). Nothing is run: JSON is parsed, and Python read as literals.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

IDENTICAL, SAME_CALL, OTHER_CALL, LOST_CALL, NO_CALL = "identical", "same call", "other call", "broken call", "no call"
MEANINGS = {
    IDENTICAL: "the same text, with a call or JSON in it",
    SAME_CALL: "other bytes, and a program reads the same call or the same JSON",
    OTHER_CALL: "another tool, other arguments or another value",
    LOST_CALL: "one of them cannot be read as a call or as JSON",
    NO_CALL: "neither holds a call or JSON",
}
CHANGED = (OTHER_CALL, LOST_CALL)  # what a program would do otherwise

CALL_TAG = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
CODE_FENCE = re.compile(r"```(?:json|tool_call|tool_code)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
LEADS = ("[TOOL_CALLS]", "<|python_tag|>")
MAX_CHARACTERS = 200_000  # characters that are read of an output
DEEPEST = 60  # levels of JSON


def calls_in(text: str) -> list[Any] | None:
    """The calls or JSON values of an output, each in one form: ``["call", name, arguments]`` or ``["json", value]``.
    None where it holds none, or one that cannot be read.

    >>> calls_in('<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>')
    [['call', 'add', {'a': 1, 'b': 2}]]
    >>> calls_in("[add(a=1, b=2)]") == calls_in('{"name": "add", "parameters": "{\\\\"a\\\\": 1.0, \\\\"b\\\\": 2}"}')
    True
    >>> calls_in("plain words"), calls_in('{"a": 1')
    (None, None)
    """
    text = text[:MAX_CHARACTERS].strip()
    for lead in LEADS:
        if lead in text:
            text = text.partition(lead)[2].strip()
    parts = CALL_TAG.findall(text) or CODE_FENCE.findall(text) or [text]
    calls = list[Any]()
    for part in parts:
        try:
            calls += _values(part.strip())
        except (ValueError, RecursionError):
            return None
    return calls or None


def judged_calls(plain: str, drafted: str) -> str:
    """Meaning of a second output beside the first to a program: a key of ``MEANINGS``.

    >>> judged_calls('{"name": "f", "arguments": {"x": 1}}', '{"name":"f","arguments":{"x":1}}')
    'same call'
    >>> judged_calls('[{"x": 1}]', '[{"x": true}]'), judged_calls('{"x": 1}', '{"x": 1'), judged_calls("a", "b")
    ('other call', 'broken call', 'no call')
    """
    first, second = calls_in(plain), calls_in(drafted)
    if first is None and second is None:
        return NO_CALL
    if first is None or second is None:
        return LOST_CALL
    if plain == drafted:
        return IDENTICAL
    return SAME_CALL if _canonical(first) == _canonical(second) else OTHER_CALL


def changed_share(verdicts: Iterable[str]) -> tuple[int, int, float | None]:
    """Of outputs of which one holds a call or JSON: how many a program would read otherwise, how many there are, and
    the share (None where there is none).

    >>> changed_share(["identical", "same call", "other call", "no call"])
    (1, 3, 0.3333333333333333)
    """
    verdict_counts = Counter(verdicts)
    change_count, total = (
        sum(verdict_counts[meaning] for meaning in CHANGED),
        sum(verdict_counts[meaning] for meaning in MEANINGS if meaning != NO_CALL),
    )
    return change_count, total, change_count / total if total else None


def _values(text: str) -> list[Any]:
    """Values of a text. Raises ValueError where it holds neither a call nor JSON."""
    if not text or text[0] not in "{[":
        raise ValueError("no JSON begins here")
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return _python_calls(text)
    return [_call(item) for item in value] if isinstance(value, list) and value else [_call(value)]


def _call(value: Any) -> Any:
    """A value of JSON: a call in its one form, else itself."""
    if isinstance(value, dict):
        inner = value.get("function", value)
        if isinstance(inner, dict) and isinstance(name := inner.get("name"), str):
            arguments = next((inner[key] for key in ("arguments", "parameters", "args") if key in inner), None)
            if arguments is not None:
                if isinstance(arguments, str):
                    arguments = json.loads(arguments or "{}")
                return ["call", name, arguments]
    return ["json", value]


def _python_calls(text: str) -> list[Any]:
    """Calls in a Python list. Raises ValueError for anything else, names and expressions among the arguments too."""
    try:
        body = ast.parse(text, mode="eval").body
    except (SyntaxError, MemoryError) as error:
        raise ValueError(str(error)) from None
    calls = body.elts if isinstance(body, ast.List) else []
    if not calls or not all(isinstance(call, ast.Call) for call in calls):
        raise ValueError("no list of calls")
    return [
        ["call", ast.unparse(call.func), {
            **{str(place): ast.literal_eval(argument) for place, argument in enumerate(call.args)},
            **{str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords},
        }] for call in calls if isinstance(call, ast.Call)
    ]  # fmt: skip


def _canonical(value: Any, depth: int = 0) -> str:
    """One spelling for equal values: keys sorted, 1.0 as 1, true apart from 1."""
    if depth > DEEPEST:
        raise ValueError(f"more than {DEEPEST} levels")
    if isinstance(value, dict):
        inner = sorted((json.dumps(str(key)), _canonical(item, depth + 1)) for key, item in value.items())
        return "{" + ",".join(f"{key}:{text}" for key, text in inner) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_canonical(item, depth + 1) for item in value) + "]"
    if isinstance(value, float) and value.is_integer():
        return json.dumps(int(value))
    return json.dumps(value, default=repr)
