"""The bytes behind token ids, so that views can group multi-byte characters and show lone bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode


class Pieces:
    """Token id → (bytes, special) for one tokenizer: byte-level BPE, SentencePiece with byte fallback, or by decoding.

    Special tokens have no bytes of their own; theirs are their name's.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.special = set(tokenizer.all_special_ids)
        self.special |= {i for i, t in getattr(tokenizer, "added_tokens_decoder", {}).items() if t.special}
        backend = getattr(tokenizer, "backend_tokenizer", None)
        decoder = str(getattr(backend, "decoder", ""))
        self.byte_of = {c: b for b, c in bytes_to_unicode().items()} if "ByteLevel" in decoder else None
        self.spaces = "Replace" in decoder or "Metaspace" in decoder
        self.of = lru_cache(maxsize=None)(self._of)

    def _of(self, token: int) -> tuple[bytes, bool]:
        if token in self.special:
            return str(self.tokenizer.convert_ids_to_tokens(token)).encode(), True
        piece = self.tokenizer.convert_ids_to_tokens(token)
        if piece is None:  # an id beyond the tokenizer: padded vocabularies have them
            return f"<id {token}>".encode(), True
        if self.byte_of is not None:
            if all(c in self.byte_of for c in piece):
                return bytes(self.byte_of[c] for c in piece), False
            return piece.encode(), False
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)]), False
        if self.spaces:
            return piece.replace("▁", " ").encode(), False
        return str(self.tokenizer.decode([token])).encode(), False
