"""Grammars: the form that an answer must have, as a JSON Schema or a regular expression; llguidance reads them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from decoders.errors import UserError, first_line

SCHEMA, REGEX = KINDS = ("json schema", "regex")
MARK, FILTER = ("mark", "filter")
"""What happens to drafted tokens that a grammar forbids: they are verified, and marked; or left out before that."""
LONGEST = 200_000  # characters of a grammar
KEPT_STATES = 128  # of the last tokens: deeper than drafts are

_tokenizers: WeakKeyDictionary[Any, dict[tuple[int, tuple[int, ...]], Any]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Grammar:
    """The form of an answer: its ``kind`` and ``text``; ``drafts`` is MARK or FILTER. The last ``prefix`` tokens of the
    prompt are the answer's own first ones. Raises UserError for a text that is no grammar.
    """

    kind: str
    text: str
    drafts: str = MARK
    prefix: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.drafts not in (MARK, FILTER):
            raise UserError(
                f"a grammar of the kind {self.kind!r} with drafts {self.drafts!r} is not known: kinds are "
                f"{' and '.join(KINDS)}, drafts are {MARK} or {FILTER}"
            )
        if len(self.text) > LONGEST:
            raise UserError(f"the {self.kind} has {len(self.text):,} characters; at most {LONGEST:,} are read")
        if self.kind == SCHEMA:
            try:
                json.loads(self.text)
            except ValueError as problem:
                raise UserError(f"the JSON Schema is no JSON: {problem}") from None

    @classmethod
    def of_schema(cls, schema: Any, drafts: str = MARK) -> Grammar:
        """The grammar of a JSON Schema, given as text or as a dict."""
        return cls(SCHEMA, schema if isinstance(schema, str) else json.dumps(schema), drafts)


class Matcher:
    """A grammar on a run's tokens, which can stand behind any beginning of the answer.

    ``start`` is the answer's first position in the text. Raises UserError without llguidance, for a grammar that it
    cannot read or that no text satisfies, and for a run without a stop token, by which an answer ends.
    """

    def __init__(self, grammar: Grammar, tokenizer: Any, vocab: int, stop_ids: Collection[int], start: int) -> None:
        try:
            from llguidance import LLMatcher
        except ImportError:
            raise UserError(
                'grammars are read by llguidance, which is not installed: pip install "specviz-drafts[grammar]"'
            ) from None
        if not stop_ids:
            raise UserError("a grammar needs a stop token, by which the answer ends, and this run has none")
        self.grammar, self.start, self.vocab = grammar, start - grammar.prefix, vocab
        self.stop_ids = frozenset(stop_ids)
        words = _token_words(tokenizer, vocab, tuple(sorted(stop_ids)))
        is_schema = grammar.kind == SCHEMA
        source = LLMatcher.grammar_from_json_schema(grammar.text) if is_schema else (
            LLMatcher.grammar_from_regex(grammar.text)
        )  # fmt: skip
        self._first = first = LLMatcher(words, source, log_level=0)
        if first.is_error():
            problem = " ".join(first.get_error().split())[:300]
            raise UserError(f"the {grammar.kind} cannot be read: {problem}")
        first.compute_bitmask()  # a grammar without any text ends here
        if first.is_stopped() and not first.is_accepting():
            raise UserError(f"no text satisfies the {grammar.kind}: not even its first token could be written")
        self._answer: list[int] = []
        self._states: deque[tuple[int, Any]] = deque([(0, first)], maxlen=KEPT_STATES)  # behind how many tokens

    @property
    def _matcher(self) -> Any:
        """llguidance's matcher behind the tokens of ``_answer``."""
        return self._states[-1][1]

    def move(self, answer: Sequence[int]) -> bool:
        """Stand behind the tokens of an answer; False, and behind those that it allows, where it forbids one. A stop
        token is allowed where the answer may end, and whatever stands behind it is no part of the answer.
        """
        end = self._find_end(answer)
        return self._move(answer) if end is None else self._move(answer[:end]) and self._matcher.is_accepting()

    def _find_end(self, answer: Sequence[int]) -> int | None:
        return next((place for place, token in enumerate(answer) if int(token) in self.stop_ids), None)

    def _move(self, answer: Sequence[int]) -> bool:
        """Every token's state is a copy of the one before it: llguidance's own way back (``rollback``, ``reset``) may
        leave a state that is another text's, seen in 1.9.1.
        """
        tokens = list(map(int, answer))
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(tokens, self._answer, strict=False)))
        while self._states and self._states[-1][0] > shared:
            self._states.pop()
        if not self._states:
            self._states.append((0, self._first))
        length, matcher = self._states[-1]
        for token in tokens[length:]:
            matcher = matcher.deep_copy()
            if not matcher.try_consume_tokens([token]):
                break
            length += 1
            self._states.append((length, matcher))
        self._answer = tokens[:length]
        return length == len(tokens)

    def mask(self, tokens: Sequence[int]) -> np.ndarray:
        """The tokens that may follow a text (prompt and answer): any behind a stop token, where nothing is written."""
        if not self.move(tokens[self.start :]):
            return np.zeros(self.vocab, dtype=bool)
        if self._find_end(tokens[self.start :]) is not None:
            return np.ones(self.vocab, dtype=bool)
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self.vocab].astype(bool)

    @property
    def standing(self) -> str:
        """The state of llguidance's matcher, in its words: for a message where it allows nothing."""
        state = self._matcher.get_error() or self._matcher.stop_reason()
        return f"llguidance, behind {len(self._answer)} tokens of the answer: {state}"

    def find_continuation(self, tokens: Sequence[int]) -> list[int]:
        """The tokens that a text can only go on with."""
        answer = tokens[self.start :]
        return self._matcher.compute_ff_tokens() if self._find_end(answer) is None and self._move(answer) else []

    def allows(self, tokens: Sequence[int], draft: Sequence[int], parents: Sequence[int]) -> list[int]:
        """The nodes of a draft that the grammar allows behind a text, each with all above it; the root is one."""
        nodes, paths = {0}, {0: list[int]()}
        answer = list(tokens[self.start :])
        for node, parent in enumerate(parents[1:], start=1):
            if parent in nodes:
                paths[node] = [*paths[parent], draft[node]]
                if self.move([*answer, *paths[node]]):
                    nodes.add(node)
        return sorted(nodes)


def _token_words(tokenizer: Any, vocab: int, stop_ids: tuple[int, ...]) -> Any:
    """llguidance's form of a tokenizer; made once for each."""
    by_size = _tokenizers.setdefault(tokenizer, {})
    if (vocab, stop_ids) not in by_size:
        from llguidance.hf import from_tokenizer

        try:
            by_size[vocab, stop_ids] = from_tokenizer(tokenizer, n_vocab=vocab, eos_token=list(stop_ids))
        except Exception as problem:
            raise UserError(f"llguidance cannot read this model's tokenizer: {first_line(problem)}") from None
    return by_size[vocab, stop_ids]
