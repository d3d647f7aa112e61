"""A datastore: texts indexed once, kept on disk and memory-mapped, to draft from (REST §3).

A file is tokenised document by document into chunks of at most ``CHUNK`` tokens, each with a suffix array, so that
neither making nor reading one takes more memory than a chunk. The array is in the order of REST's: by the tokens from a
place on, so that of very many places of a string the first ones are those that the released code looks at. It is kept
under the fingerprint of the file's bytes and of the tokenizer: a file that changed is indexed again. Token ids are 32
bits wide.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from decoders.errors import UserError
from decoders.folders import cache_folder, replacing

from .pool import SEPARATOR, Trie, merge, sorted_ends

SCHEMA = "specstore/2"
CHUNK = 1 << 22  # tokens
LONGEST = 16  # tokens of a suffix that is looked up
DEEPEST = 64  # tokens copied behind it; places are sorted by so many more
MOST_TOKENS = 1 << 31
MOST_LINE = 1 << 24  # characters of one document
DOCUMENTS = 256  # tokenised together
TEXT_KEYS = ("text", "content", "answer", "response", "output")
ABOUT = "datastore.json"


@dataclass(frozen=True, slots=True)
class StoreMatch:
    """Places of a suffix of ``length`` tokens: ``hits`` in all; per chunk, those that are looked at."""

    length: int
    hits: int
    ends: tuple[Int[np.ndarray, " places"], ...]


class Chunk:
    """Tokens with a separator (-1) behind each document, and the places of its tokens sorted by what stands there."""

    def __init__(self, text: np.ndarray, places: np.ndarray) -> None:
        self.text, self.places = text, places
        self._fast_text, self._fast_places = text.data, places.data  # faster where single items are read

    def interval(self, string: list[int]) -> tuple[int, int]:
        """The ``places`` that have this string with a token behind it."""
        low = self._first([*string, 0])  # the separator is below every token
        return low, self._first([*string[:-1], string[-1] + 1], low)

    def longest(self, sequence: list[int], minimum: int) -> int:
        """Count the last tokens that stand here with a token behind them, at least ``minimum``; 0: not so many do."""
        low, high = minimum - 1, len(sequence)
        while low < high:  # if a suffix stands here, so do the shorter ones
            middle = (low + high + 1) // 2
            suffix = sequence[-middle:]
            at = self._first([*suffix, 0])
            text_place = self._fast_places[at] if at < len(self.places) else len(self.text)
            if self._fast_text[text_place : text_place + middle].tolist() == suffix:
                low = middle
            else:
                high = middle - 1
        return low if low >= minimum else 0

    def _first(self, string: list[int], low: int = 0) -> int:
        text, count = self._fast_text, len(string)
        return bisect_left(self._fast_places, string, low, key=lambda at: text[at : at + count].tolist())


class Datastore:
    """An opened datastore. ``name`` is the file's, ``tokens`` its size."""

    def __init__(self, name: str, tokens: int, chunks: Sequence[Chunk]) -> None:
        self.name, self.tokens, self.chunks = name, tokens, tuple(chunks)

    def find(self, sequence: Int[np.ndarray, " tokens"], longest: int, shortest: int, max_places: int) -> StoreMatch:
        """The longest suffix of ``longest`` to ``shortest`` tokens that stands in any chunk with a token behind it. Of
        more places than ``max_places`` in a chunk, the first in suffix order are looked at.
        """
        last = sequence[-min(longest, LONGEST) :].tolist()
        length = 0
        for chunk in self.chunks:
            length = chunk.longest(last, max(1, shortest, length)) or length
        if not length:
            return StoreMatch(0, 0, ())
        spans = [chunk.interval(last[-length:]) for chunk in self.chunks]
        ends = tuple(
            chunk.places[low : min(high, low + max_places)].astype(np.int64) + length - 1
            for chunk, (low, high) in zip(self.chunks, spans, strict=True)
        )
        return StoreMatch(length, sum(high - low for low, high in spans), ends)

    def continuations(self, match: StoreMatch, depth: int, limit: int, max_places: int) -> Trie:
        """The continuations, up to ``depth`` tokens inside the document, as a trie of the ``limit`` most frequent
        nodes; of more places than ``max_places`` in all chunks, of those that come first in suffix order.
        """
        rows, places, offset = [], [], 0
        for chunk, ends in zip(self.chunks, match.ends, strict=True):
            at = np.minimum(ends[:, None] + np.arange(1, depth + 1), len(chunk.text) - 1)
            following = np.asarray(chunk.text[at], dtype=np.int64)
            rows.append(np.where(np.logical_and.accumulate(following != SEPARATOR, axis=1), following, SEPARATOR))
            places.append(ends + offset)
            offset += len(chunk.text)
        return merge(np.concatenate(rows), np.concatenate(places), limit, max_places)


def sorted_places(text: Int[np.ndarray, " text"]) -> Int[np.ndarray, " places"]:
    """Places of tokens sorted by the tokens from them on, as many as a lookup and its longest copy read."""
    return len(text) - 1 - sorted_ends(text[::-1], LONGEST + DEEPEST, with_ends=True)


def documents(path: Path) -> Iterator[str]:
    """The texts of a file: of JSONL (by its name) one per line, else its paragraphs.

    Raises UserError for what is no text in UTF-8, and for a line without a text or too long to be one document.
    """
    try:
        with path.open(encoding="utf-8") as file:
            if path.suffix in (".jsonl", ".ndjson"):
                for number, line in enumerate(iter(lambda: file.readline(MOST_LINE + 1), ""), 1):
                    place = f"{path.name}, line {number}"
                    if len(line) > MOST_LINE:
                        raise UserError(f"{place} is longer than {MOST_LINE:,} characters: split the document")
                    if line.strip():
                        yield _of_line(line, place)
                return
            paragraph: list[str] = []
            size = 0
            for line in iter(lambda: file.readline(MOST_LINE), ""):
                if "\0" in line:
                    raise UserError(f"{path.name} is no text: it has NUL bytes. Give a text or JSONL file in UTF-8")
                if line.strip():
                    paragraph.append(line)
                    size += len(line)
                if paragraph and (not line.strip() or size > MOST_LINE):
                    yield "".join(paragraph)
                    paragraph, size = [], 0
            if paragraph:
                yield "".join(paragraph)
    except UnicodeDecodeError:
        raise UserError(f"{path.name} is no text in UTF-8: give a text or JSONL file") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def _of_line(line: str, place: str) -> str:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise UserError(f"{place} is no JSON: each line of a JSONL file is one document") from None
    if isinstance(data, str):
        return data
    if isinstance(data, dict):
        for key in TEXT_KEYS:
            if isinstance(data.get(key), str):
                return data[key]
        turns = next(
            (data[key] for key in ("messages", "conversations", "turns") if isinstance(data.get(key), list)), []
        )
        contents = [turn.get("content", turn.get("value")) if isinstance(turn, dict) else turn for turn in turns]
        texts = [text for text in contents if isinstance(text, str)]
        if texts and len(texts) == len(contents):
            return "\n".join(texts)
    raise UserError(f"{place} has no text: it needs one of {', '.join(TEXT_KEYS)}, messages or conversations")


def open_datastore(path: str | Path, tokenizer: Any) -> Datastore:
    """The datastore of a file, made where there is none yet for these bytes and this tokenizer (or where the kept one
    is damaged).

    Raises UserError for a file that is missing, empty or no text.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(f"there is no datastore file {path}: give a text or JSONL file")
    folder = cache_folder() / "datastores" / fingerprint(path, tokenizer)
    return _read(folder) or _make(folder, path, tokenizer)


def fingerprint(path: Path, tokenizer: Any) -> str:
    """The key of a datastore: the file's bytes, how it is split into documents, and the tokenizer's pieces."""
    digest = hashlib.sha256(f"{SCHEMA} {CHUNK} {LONGEST} {path.suffix}".encode())
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    digest.update(json.dumps(sorted(tokenizer.get_vocab().items())).encode())
    return digest.hexdigest()[:24]


def _read(folder: Path) -> Datastore | None:
    """The datastore in a folder; None where there is none, or not all of it."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if about["schema"] != SCHEMA:
            return None
        chunks = []
        for number, (tokens, places) in enumerate(about["chunks"]):
            chunk = [np.load(folder / f"{array_name}-{number}.npy", mmap_mode="r") for array_name in ("text", "places")]
            if [len(array) for array in chunk] != [tokens, places] or any(a.dtype != np.int32 for a in chunk):
                return None
            chunks.append(Chunk(*chunk))
        return Datastore(str(about["name"]), int(about["tokens"]), chunks)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make(folder: Path, path: Path, tokenizer: Any) -> Datastore:
    total, sizes, has_followers = 0, [], False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as new:
        for number, text in enumerate(_chunks(path, tokenizer)):
            real = text != SEPARATOR
            total, has_followers = total + int(real.sum()), has_followers or bool((real[:-1] & real[1:]).any())
            if total > MOST_TOKENS:
                raise UserError(f"{path.name} has more than {MOST_TOKENS:,} tokens: split it")
            places = sorted_places(text).astype(np.int32)
            np.save(new / f"text-{number}.npy", text.astype(np.int32))
            np.save(new / f"places-{number}.npy", places)
            sizes.append([len(text), len(places)])
        if not has_followers:
            raise UserError(f"{path.name} holds no text: give one with at least a few words in it")
        about = {"schema": SCHEMA, "name": path.name, "tokens": total, "chunks": sizes}
        (new / ABOUT).write_text(json.dumps(about) + "\n", encoding="utf-8")
    store = _read(folder)
    if store is None:
        raise UserError(f"the datastore of {path.name} cannot be read back from {folder}: is the disk full?")
    return store


def _chunks(path: Path, tokenizer: Any) -> Iterator[np.ndarray]:
    """The tokens of whole documents, a separator behind each, at most about ``CHUNK`` together."""
    parts: list[np.ndarray] = [np.array([SEPARATOR])]
    size = 1
    texts = documents(path)
    while batch := list(islice(texts, DOCUMENTS)):
        for ids in tokenizer(batch, add_special_tokens=False)["input_ids"]:
            for start in range(0, len(ids), CHUNK - 2):
                piece = np.append(np.asarray(ids[start : start + CHUNK - 2], dtype=np.int64), SEPARATOR)
                if size + len(piece) > CHUNK:
                    yield np.concatenate(parts)
                    parts, size = [np.array([SEPARATOR])], 1
                parts.append(piece)
                size += len(piece)
    if size > 1:
        yield np.concatenate(parts)
