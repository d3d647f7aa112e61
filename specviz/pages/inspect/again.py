"""A recorded run's prompt as it would be typed, so that it can be edited and run again."""

from __future__ import annotations

import dataclasses
import re
from itertools import groupby, pairwise

from decoders.prompt.grammar import Grammar
from decoders.prompt.templates import CONTEXT, QUESTION, templates
from decoders.trace.trace import Trace
from specviz.server.forms import PromptForm
from specviz.views.examples import SEPARATOR

TEXT_FIELDS = ("instruction", "context", "question", "chat", "text")
Stretch = tuple[str, int, str]  # a segment's name, its passage, its text


def form_of(trace: Trace) -> PromptForm:
    """The form that a run's prompt was made from, with its reference and the form of its answer."""
    grammar = trace.run.get("grammar")
    return dataclasses.replace(
        _typed_form(trace),
        reference=str(trace.run.get("reference") or ""),
        grammar=Grammar(grammar["kind"], grammar["text"], grammar["drafts"]) if grammar else None,
    )


def _typed_form(trace: Trace) -> PromptForm:
    """The texts that a run's prompt was made from: of a chat its messages, without the template around them.

    A trace records which part of the prompt each token belongs to. A token that spans two parts counts for the first,
    so what stands behind a template's line breaks is given back to the part that follows.
    """
    stretches = _stretches(trace)
    names = {name for name, _, _ in stretches}
    if "chat" in names:
        parts = [text.strip("\n") for name, _, text in stretches if name != "template"]
        return PromptForm("chat", dialogue=_turns(parts))
    if "text" in names or not names & set(TEXT_FIELDS):
        ids = [t for t, s in zip(trace.prompt_ids, _column(trace, "segment"), strict=True) if s != "template"]
        return PromptForm("text", text=trace.text(ids or trace.prompt_ids))
    parts = [name for name, _, _ in stretches if name in TEXT_FIELDS]
    if parts != sorted(parts, key=TEXT_FIELDS.index) or parts.count("instruction") > 1:
        return _from_template(trace)
    texts = {name: [text.strip("\n") for segment, _, text in stretches if segment == name] for name in TEXT_FIELDS}
    passages = texts["context"]
    if len(passages) > 1:
        passages = [text.removeprefix(f"[{number}] ") for number, text in enumerate(passages, 1)]
    return PromptForm(
        "segments",
        instruction="\n".join(texts["instruction"]),
        context=f"\n{SEPARATOR}\n".join(passages),
        question="\n".join(texts["question"]),
    )


def _from_template(trace: Trace) -> PromptForm:
    """The form of a prompt whose parts stand in a template: of one that comes along its context and question, of any
    other the whole text as one message.
    """
    typed_at = [n for n, name in enumerate(_column(trace, "segment")) if name in TEXT_FIELDS]
    whole = trace.text(trace.prompt_ids[typed_at[0] : typed_at[-1] + 1])
    for template in templates().values():
        pattern = re.escape(template.text)
        for place in (CONTEXT, QUESTION):
            pattern = pattern.replace(re.escape(place), f"(?P<{place[1:-1]}>.*)")
        if (match := re.fullmatch(pattern, whole, re.DOTALL)) is None:
            continue
        context, question = match["context"], match.groupdict().get("question", "")
        if (context, question) == (context.strip(), question.strip()):  # a form keeps no blanks at their ends
            passages = re.split(r"\n\[\d+\] ", "\n" + context)[1:] if context.startswith("[1] ") else [context]
            return PromptForm("segments", template.text, f"\n{SEPARATOR}\n".join(passages), question)
    return PromptForm("chat", dialogue=(("user", whole),))


def missing_note(trace: Trace) -> str:
    """A note on what the form could not take over of a run; "" where it holds all of it."""
    pool = trace.run.get("pool") or {}
    if pool and not pool.get("in_prompt", True):
        return f"This run drafted from {pool.get('label', 'a text of its own')}: choose that file again under More."
    return ""


def _stretches(trace: Trace) -> list[Stretch]:
    """The prompt's parts in order, with the text that a template's token had of the part that follows."""
    keys = zip(_column(trace, "segment"), _column(trace, "passage"), trace.prompt_ids, strict=True)
    parts = [
        (name, passage, trace.text([token for _, _, token in rows]))
        for (name, passage), rows in groupby(keys, key=lambda row: row[:2])
    ]
    indices = [k for k, (name, _, _) in enumerate(parts) if name in TEXT_FIELDS]
    for left_index, right_index in pairwise(indices):
        if (
            right_index == left_index + 2 and parts[left_index][0] != "chat"
        ):  # a gap between parts of one turn: line breaks alone
            tail = parts[left_index + 1][2].lstrip("\n")
            parts[right_index] = (*parts[right_index][:2], tail + parts[right_index][2])
    return parts


def _column(trace: Trace, name: str) -> list:
    return trace.tables["tokens"][name][: trace.run["prompt_length"]]


def _turns(parts: list[str]) -> tuple[tuple[str, str], ...]:
    """The turns of a conversation, by turns the user's and the assistant's; one too many at first is the system's."""
    roles = [("user", "assistant")[(len(parts) - 1 - k) % 2] for k in range(len(parts))]
    if roles[0] == "assistant":
        roles[0] = "system"
    return tuple(zip(roles, parts, strict=True))
