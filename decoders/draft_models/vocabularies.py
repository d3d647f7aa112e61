"""Two vocabularies side by side: what a draft model with another tokenizer wrote, in the target's tokens.

By text (universal assisted generation, as in transformers; "string-level exact match" of Timor et al. 2025,
arXiv:2502.05202, algorithm 2): the text of one is written in the tokens of the other. By shared tokens ("token-level
intersection", algorithm 4 there; vLLM's heterogeneous vocabularies): the draft model is limited to tokens whose text is
one token of the target, so that it has a distribution over the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int

from decoders.prompt.pieces import Pieces

TAIL = 16  # tokens of the text that a draft is written behind, so that its first token is the one after them


@dataclass(frozen=True, slots=True)
class TargetText:
    """A text in the target's tokens: ``tokens``, and for each of the pieces that it was made from the ``first`` and the
    ``last`` of them that carry some of its bytes (-1: none, it was left out).
    """

    tokens: tuple[int, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]


class Vocabularies:
    """The target's tokenizer and that of its draft model (``assistant``), of ``target_size`` and ``assistant_size`` ids
    as their models count them.
    """

    def __init__(self, target: Any, assistant: Any, target_size: int, assistant_size: int) -> None:
        self.target, self.assistant = target, assistant
        self.target_size, self.assistant_size = target_size, assistant_size
        self.pieces, self.assistant_pieces = Pieces(target), Pieces(assistant)
        self._own_tokens: dict[int, tuple[int, ...]] = {}  # token of the target → the assistant's, of its text alone

    def text(self, tokens: Sequence[int]) -> str:
        """The text of some of the target's tokens, special ones left out."""
        parts = [data for data, special in map(self.pieces.of, tokens) if not special]
        return b"".join(parts).decode("utf-8", "replace")

    def assistant_ids(self, tokens: Sequence[int]) -> list[int]:
        """A text of the target's in the assistant's tokens, with those that its tokenizer begins a text with; at least
        one.
        """
        ids = self.assistant(self.text(tokens), add_special_tokens=True)["input_ids"]
        return list(ids) or [next(iter(self.assistant.all_special_ids), 0)]

    def write(self, context: Sequence[int], assistant: Sequence[int]) -> TargetText:
        """The assistant's text behind a text of the target's, in the target's tokens.

        It is tokenized behind the last tokens of the text where a token begins there, else by itself. Special tokens
        end it, and bytes that are no whole character yet are left out.
        """
        pieces = list[bytes]()
        for token in assistant:
            data, special = self.assistant_pieces.of(token)
            if special:
                break
            pieces.append(data)
        whole = b"".join(pieces)
        text = _valid(whole)
        tokens = self._tokens_behind(context[-TAIL:], text)
        sizes = [len(self.pieces.of(token)[0]) for token in tokens]
        ends = np.cumsum([0, *sizes])
        first, last, at = list[int](), list[int](), 0
        for data in [*pieces, *[b""] * (len(assistant) - len(pieces))]:
            begin, end = at, min(at + len(data), int(ends[-1]))
            at += len(data)
            has_bytes = begin < end
            first.append(int(np.searchsorted(ends, begin, "right")) - 1 if has_bytes else -1)
            last.append(int(np.searchsorted(ends, end, "left")) - 1 if has_bytes else -1)
        return TargetText(tuple(tokens), tuple(first), tuple(last))

    def _tokens_behind(self, tail: Sequence[int], text: str) -> list[int]:
        """A text in the target's tokens, as they go on behind the tail; as far as their bytes are the text's."""
        if not text:
            return []
        special = [i for i, token in enumerate(tail) if self.pieces.of(token)[1]]
        tail_bytes = b"".join(self.pieces.of(token)[0] for token in tail[special[-1] + 1 if special else 0 :])
        tail_bytes = tail_bytes.lstrip(bytes(range(0x80, 0xC0)))  # a character that began earlier
        data = text.encode()
        if tail_bytes and _valid(tail_bytes).encode() == tail_bytes:
            ids = self._encode(tail_bytes.decode() + text)
            ends = np.cumsum([len(self.pieces.of(token)[0]) for token in ids])
            extra = (
                int(ends[-1]) - len(tail_bytes) - len(data) if len(ends) else 0
            )  # a space that the tokenizer puts first
            at = np.flatnonzero(ends == len(tail_bytes) + extra)
            if extra in (0, 1) and len(at) and self._bytes(ids[at[0] + 1 :]) == data:
                return ids[at[0] + 1 :]
        ids, good, at = self._encode(text), list[int](), 0
        for token in ids:
            piece, special = self.pieces.of(token)
            if special or data[at : at + len(piece)] != piece or not piece:
                break
            good.append(token)
            at += len(piece)
        return good

    def _encode(self, text: str) -> list[int]:
        return list(self.target(text, add_special_tokens=False)["input_ids"])

    def _bytes(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.pieces.of(token)[0] for token in tokens)

    # --- shared tokens

    @cached_property
    def shared_tokens(self) -> Int[np.ndarray, " assistant"]:
        """Of every token of the assistant's, the target's of the same bytes, -1 where there is none. Special tokens are
        shared by their names; of several with one text the first is taken.
        """
        target_tokens = dict[tuple[bytes, bool], int]()
        for token in range(min(self.target_size, len(self.target))):
            target_tokens.setdefault(self.pieces.of(token), token)
        token_map, used_tokens = np.full(self.assistant_size, -1, dtype=np.int64), set[int]()
        for token in range(min(self.assistant_size, len(self.assistant))):
            piece = self.assistant_pieces.of(token)
            target_token = target_tokens.get(piece, -1) if piece[0] else -1
            if target_token >= 0 and target_token not in used_tokens:
                token_map[token] = target_token
                used_tokens.add(target_token)
        return token_map

    @cached_property
    def assistant_of(self) -> dict[int, int]:
        """Of each shared token of the target's, the assistant's."""
        return {int(target_token): token for token, target_token in enumerate(self.shared_tokens) if target_token >= 0}

    def token_by_token(self, tokens: Sequence[int], prompt_length: int) -> list[int]:
        """A text of the target's in the assistant's tokens: the prompt by its text, then token by token, those that are
        not shared by their text alone.
        """
        ids = self.assistant_ids(tokens[:prompt_length])
        for token in tokens[prompt_length:]:
            if (assistant_token := self.assistant_of.get(int(token))) is not None:
                ids.append(assistant_token)
                continue
            if token not in self._own_tokens:
                text = self.text([token])
                self._own_tokens[token] = tuple(self.assistant(text, add_special_tokens=False)["input_ids"])
            ids += self._own_tokens[token]
        return ids


def _valid(data: bytes) -> str:
    """The text of bytes up to the first that are no character, or not a whole one."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return data[: error.start].decode("utf-8")
