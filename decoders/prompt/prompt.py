"""Prompts: token ids and which part of the prompt each belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from decoders.errors import UserError

from .chat import render_chat
from .grammar import Grammar
from .templates import Part, is_template, laid_out


@dataclass(frozen=True, slots=True)
class Segment:
    """Positions [start, stop) of the prompt that are one part; ``passage`` numbers a context's passages, else -1."""

    name: str
    start: int
    stop: int
    passage: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Text that drafts may come from: token ids ``[tokens]``, of passages that begin at ``starts`` (the first at 0).

    ``positions`` ``[tokens]`` says where each token stands in the prompt; None where the pool is another text.
    ``label`` names the pool.
    """

    tokens: np.ndarray
    starts: tuple[int, ...]
    positions: np.ndarray | None = None
    label: str = "the prompt's context"

    @property
    def passages(self) -> np.ndarray:
        """The passage number of every token ``[tokens]``.

        >>> Pool(np.array([5, 6, 7]), (0, 2)).passages
        array([0, 0, 1])
        """
        return np.repeat(np.arange(len(self.starts)), np.diff([*self.starts, len(self.tokens)]))

    def in_prompt(self, places: Sequence[int] | np.ndarray) -> np.ndarray:
        """Positions in the prompt of places in the pool ``[places]``; -1 where they are not in it, and of the place -1.

        >>> Pool(np.array([5, 6]), (0,), np.array([3, 9])).in_prompt((-1, 1))
        array([-1,  9])
        """
        at = np.asarray(places, dtype=np.int64)
        return np.full(len(at), -1) if self.positions is None else np.where(at >= 0, self.positions[at], -1)

    @classmethod
    def from_text(cls, tokenizer: Any, text: str, label: str) -> Pool:
        """A text of its own; paragraphs with a blank line between them are its passages."""
        parts = [part for part in re.split(r"\n[ \t]*\n", text) if part.strip()]
        if not parts:
            raise UserError(f"{label} holds no text: give one with at least a word in it")
        encoded = [ids for ids in tokenizer(parts, add_special_tokens=False)["input_ids"] if ids]
        starts = np.cumsum([0, *(len(ids) for ids in encoded[:-1])]).tolist()
        return cls(np.concatenate([np.asarray(ids, dtype=np.int64) for ids in encoded]), tuple(starts), None, label)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation that a prompt is one turn of: its ``messages`` (role, text) so far, the prompt's own last; the
    ``further`` user turns, with their ``references`` ("" or none where no answer is known); which ``turn`` the prompt
    is, from 1.
    """

    messages: tuple[tuple[str, str], ...]
    further: tuple[str, ...]
    references: tuple[str, ...] = ()
    turn: int = 1


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids with their segments, which cover all positions in order.

    ``pool``: a text to draft from that is not (as it stands) in the prompt. ``compression``: what was left out of the
    prompt, in numbers. ``reference``: the answer that is hoped for, "" where none is known; ``reference_of``: whose it
    is in words ("the example's"), "" where that was not told. ``dialogue``: the user's turns that come after it.
    ``unplaced``: parts that the chat template left out or rewrote, in words; they have no segment. ``grammar``: the
    form that the answer must have.
    """

    tokens: tuple[int, ...]
    segments: tuple[Segment, ...]
    pool: Pool | None = None
    compression: dict[str, Any] | None = None
    reference: str = ""
    reference_of: str = ""
    dialogue: Dialogue | None = None
    unplaced: tuple[str, ...] = ()
    grammar: Grammar | None = None

    @property
    def turn(self) -> int:
        """The number of this user turn in its conversation, from 1."""
        return self.dialogue.turn if self.dialogue else 1

    @property
    def turns(self) -> int:
        """User turns from this one on."""
        return 1 + len(self.dialogue.further) if self.dialogue else 1

    def following(self, tokenizer: Any, answer: Sequence[int]) -> Prompt:
        """The user's next turn, behind the model's ``answer`` (token ids) to this one: as text through the chat
        template, which is how Spec-Bench and MT-Bench go on. Raises ValueError where no turn follows.
        """
        if self.dialogue is None or not self.dialogue.further:
            raise ValueError(f"turn {self.turn} is the last one of this prompt")
        talk, text = self.dialogue, tokenizer.decode(list(answer), skip_special_tokens=True).strip()
        messages = (*talk.messages, ("assistant", text), ("user", talk.further[0]))
        prompt = Prompt.from_messages(tokenizer, [{"role": role, "content": content} for role, content in messages])
        dialogue = Dialogue(messages, talk.further[1:], talk.references[1:], talk.turn + 1)
        return replace(prompt, reference=next(iter(talk.references), ""), dialogue=dialogue, grammar=self.grammar)

    def __post_init__(self) -> None:
        if not self.tokens:
            raise UserError("the prompt is empty: type at least one character, or open an example")

    def context_pool(self) -> Pool | None:
        """The prompt's context as a pool, one passage per context segment; None if the prompt has no context."""
        parts = [s for s in self.segments if s.name == "context" and s.stop > s.start]
        if not parts:
            return None
        starts, count = [], 0
        for part, prior_part in zip(parts, [None, *parts], strict=False):
            if prior_part is None or part.passage != prior_part.passage:
                starts.append(count)
            count += part.stop - part.start
        positions = np.concatenate([np.arange(s.start, s.stop) for s in parts])
        return Pool(np.asarray(self.tokens, dtype=np.int64)[positions], tuple(starts), positions)

    @classmethod
    def from_ids(cls, tokens: Sequence[int]) -> Prompt:
        return cls(tuple(tokens), (Segment("text", 0, len(tokens)),) if tokens else ())

    @classmethod
    def from_text(cls, tokenizer: Any, text: str, chat: bool = False) -> Prompt:
        """Plain text as it is, or (``chat``) as one user turn in the model's chat template."""
        if chat and tokenizer.chat_template:
            return cls.from_messages(tokenizer, [{"role": "user", "content": text}])
        _not_empty(text)
        return _encode(tokenizer, [(text, "text", -1)], special=True)

    @classmethod
    def from_messages(cls, tokenizer: Any, messages: Sequence[dict[str, str]]) -> Prompt:
        """Chat turns in the model's chat template, ready for the assistant's answer."""
        _not_empty("".join(m["content"] for m in messages))
        parts = [[(m["content"], "chat", -1)] for m in messages]
        return _from_template(tokenizer, [m["role"] for m in messages], parts)

    @classmethod
    def from_segments(
        cls,
        tokenizer: Any,
        instruction: str = "",
        context: str | Sequence[str] = "",
        question: str = "",
    ) -> Prompt:
        """One user turn made of an instruction, a context (one text, or passages numbered [1], [2], …) and a question.

        Non-empty parts are joined by a blank line, unless the instruction is a template: {context} and {question} in it
        say where they stand (``templates``).
        """
        return _from_template(tokenizer, ["user"], [segment_parts(instruction, context, question)])


def segment_parts(instruction: str, context: str | Sequence[str], question: str) -> list[Part]:
    """The parts of one user turn, as ``Prompt.from_segments`` lays them out. Raises UserError for an empty one."""
    passages = [context] if isinstance(context, str) else list(context)
    passages = [p for p in passages if p.strip()]
    between: Part = ("\n", "template", -1)
    context_parts: list[Part] = []
    for i, passage in enumerate(passages):
        text = f"[{i + 1}] {passage}" if len(passages) > 1 else passage
        context_parts += [*([between] if i else []), (text, "context", i)]
    if is_template(instruction):
        parts = laid_out(instruction, context_parts, question)
    else:
        groups = [[(instruction, "instruction", -1)], context_parts, [(question, "question", -1)]]
        parts = []
        for group in groups:
            if group and group[0][0].strip():
                parts += [*_gap(parts), *group]
    _not_empty("".join(text for text, _, _ in parts))
    return parts


def _gap(parts: list[Part]) -> list[Part]:
    return [("\n\n", "template", -1)] if parts else []


def _not_empty(text: str) -> None:
    if not text.strip():
        raise UserError("the prompt is empty: type at least one character, or open an example")


def _from_template(tokenizer: Any, roles: list[str], turns: list[list[Part]]) -> Prompt:
    """The turns in the model's chat template or, without one, with blank lines between them."""
    pieces: list[Part] = []
    if not tokenizer.chat_template:
        for turn in turns:
            pieces += [*_gap(pieces), *turn]
        return _encode(tokenizer, pieces, special=True)
    contents = ["".join(text for text, _, _ in turn) for turn in turns]
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    text, places = render_chat(tokenizer, messages)
    parts = [part for turn in turns for part in turn]
    role_of_part = [role for role, turn in zip(roles, turns, strict=True) for _ in turn]
    owners = np.repeat(np.arange(len(parts)), [len(part) for part, _, _ in parts])
    labels = np.append(owners, -1)[places]  # the last is the template's own
    cuts = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(text)]
    kinds = [(name, passage) for _, name, passage in parts] + [("template", -1)]
    pieces = [(text[start:stop], *kinds[labels[start]]) for start, stop in pairwise(cuts) if start < stop]
    prompt = _encode(tokenizer, pieces, special=False)
    found_labels = set(labels.tolist())
    unplaced_parts = tuple(
        f"{role} message" if name == "chat" else f"{name} {passage + 1}" if passage >= 0 else name
        for number, (role, (content, name, passage)) in enumerate(zip(role_of_part, parts, strict=True))
        if number not in found_labels and name != "template" and content.strip()
    )
    return replace(prompt, unplaced=unplaced_parts)


def _encode(tokenizer: Any, parts: Sequence[Part], *, special: bool) -> Prompt:
    """The joined text, tokenised once; each token belongs to the part its first character lies in.

    Where what was typed spells a special token, template and typed parts are tokenised apart, so that it stays text.
    """
    typed_text = "".join(part for part, name, _ in parts if name != "template")
    try:
        typed_text.encode()
    except UnicodeEncodeError as error:
        place = f"character {error.start + 1:,} of the prompt"
        raise UserError(f"{place} is no text (a byte that is not UTF-8, or half a pair): give it in UTF-8") from None
    if not special and any(token in typed_text for token in _special_tokens(tokenizer)):
        ids: list[int] = []
        per_token_parts: list[tuple[str, int]] = []
        for part, name, passage in parts:
            as_text = {} if name == "template" else {"split_special_tokens": True}
            new = tokenizer(part, add_special_tokens=False, **as_text)["input_ids"]
            ids += new
            per_token_parts += [(name, passage)] * len(new)
        return Prompt(tuple(ids), segments_of(per_token_parts))
    text = "".join(part for part, _, _ in parts)
    encoded = tokenizer(text, add_special_tokens=special, return_offsets_mapping=tokenizer.is_fast)
    ids = encoded["input_ids"]
    labels: list[tuple[str, int]] = []
    for part, name, passage in parts:
        labels += [(name, passage)] * len(part)
    if tokenizer.is_fast:
        offsets = [start for start, _ in encoded["offset_mapping"]]
        empty = [start == stop for start, stop in encoded["offset_mapping"]]
    else:  # a slow tokenizer gives no offsets: the whole prompt is one segment
        offsets, empty, labels = [0] * len(ids), [False] * len(ids), [("text", -1)] * max(1, len(text))
    per_token = [("template", -1) if e or o >= len(labels) else labels[o] for o, e in zip(offsets, empty, strict=True)]
    return Prompt(tuple(ids), segments_of(per_token))


def _special_tokens(tokenizer: Any) -> set[str]:
    added_tokens = getattr(tokenizer, "added_tokens_decoder", {}).values()
    return {*tokenizer.all_special_tokens, *(token.content for token in added_tokens if token.special)}


def segments_of(per_token: Iterable[tuple[str, int]]) -> tuple[Segment, ...]:
    """Segments of neighbouring tokens that belong to the same part: its name and passage, per token."""
    segments: list[Segment] = []
    for i, (name, passage) in enumerate(per_token):
        if segments and (segments[-1].name, segments[-1].passage) == (name, passage):
            segments[-1] = Segment(name, segments[-1].start, i + 1, passage)
        else:
            segments.append(Segment(name, i, i + 1, passage))
    return tuple(segments)
