"""A datastore: texts indexed once, kept on disk and memory-mapped, to draft from (REST §3).

A file is tokenised document by document into chunks of at most ``CHUNK`` tokens, each with a suffix array (``pool``),
so that neither making nor reading one takes more memory than a chunk. It is kept under the fingerprint of the file's
bytes and of the tokenizer: a file that changed is indexed again. Token ids are 32 bits wide.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from decoders.errors import UserError
from decoders.folders import cache_folder, replacing

from .pool import SEPARATOR, Trie, intervals, merged, sorted_ends

SCHEMA = "specstore/1"
CHUNK = 1 << 22  # tokens
LONGEST = 16  # tokens that places are sorted by
MOST_TOKENS = 1 << 31
MOST_LINE = 1 << 24  # characters of one document
DOCUMENTS = 256  # tokenised together
TEXT_KEYS = ("text", "content", "answer", "response", "output")
ABOUT = "datastore.json"


@dataclass(frozen=True, slots=True)
class Found:
    """Where a suffix of ``length`` tokens stands: ``hits`` times in all; per chunk, the places that are looked at."""

    length: int
    hits: int
    ends: tuple[Int[np.ndarray, "places"], ...]


class Chunk:
    """Tokens with a separator (-1) behind each document, and the places of its tokens sorted by what stands before."""

    def __init__(self, text: np.ndarray, ends: np.ndarray) -> None:
        self.text, self.ends = text, ends
        self._fast_text, self._fast_ends = text.data, ends.data  # faster where single items are read

    def intervals(self, sequence: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Of suffixes of 1, 2, … tokens, as long as they occur with a token behind them: which of ``ends``."""
        return intervals(self._fast_text, self._fast_ends, reversed(sequence))


class Datastore:
    """An opened datastore. ``name`` is the file's, ``tokens`` its size."""

    def __init__(self, name: str, tokens: int, chunks: Sequence[Chunk]) -> None:
        self.name, self.tokens, self.chunks = name, tokens, tuple(chunks)

    def find(self, sequence: Int[np.ndarray, "tokens"], longest: int, shortest: int, most: int) -> Found:
        """The longest suffix of ``longest`` to ``shortest`` tokens that stands in any chunk with a token behind it. Of
        more places than ``most``, so many are looked at, spread evenly.
        """
        last = sequence[-min(longest, LONGEST) :].tolist()
        every = [list(chunk.intervals(last)) for chunk in self.chunks]
        length = max(map(len, every), default=0)
        if length < max(1, shortest):
            return Found(0, 0, ())
        spans = [found[-1] if len(found) == length else (0, 0) for found in every]
        hits = sum(high - low for low, high in spans)
        taken = min(hits, most)
        ends, before = [], 0
        picked = np.arange(taken) * hits // taken
        for chunk, (low, high) in zip(self.chunks, spans, strict=True):
            mine = picked[(picked >= before) & (picked < before + high - low)] - before
            ends.append(np.sort(chunk.ends[low + mine].astype(np.int64)))
            before += high - low
        return Found(length, hits, tuple(ends))

    def continuations(self, found: Found, depth: int, limit: int) -> Trie:
        """What follows, up to ``depth`` tokens inside the document, as a trie of the ``limit`` most frequent nodes."""
        rows, places, before = [], [], 0
        for chunk, ends in zip(self.chunks, found.ends, strict=True):
            at = np.minimum(ends[:, None] + np.arange(1, depth + 1), len(chunk.text) - 1)
            following = np.asarray(chunk.text[at], dtype=np.int64)
            rows.append(np.where(np.logical_and.accumulate(following != SEPARATOR, axis=1), following, SEPARATOR))
            places.append(ends + before)
            before += len(chunk.text)
        return merged(np.concatenate(rows), np.concatenate(places), limit)


def documents(path: Path) -> Iterator[str]:
    """The texts of a file: of JSONL (by its name) one per line, else its paragraphs.

    Raises UserError for what is no text in UTF-8, and for a line without a text or too long to be one document.
    """
    try:
        with path.open(encoding="utf-8") as file:
            if path.suffix in (".jsonl", ".ndjson"):
                for number, line in enumerate(iter(lambda: file.readline(MOST_LINE + 1), ""), 1):
                    where = f"{path.name}, line {number}"
                    if len(line) > MOST_LINE:
                        raise UserError(f"{where} is longer than {MOST_LINE:,} characters: split the document")
                    if line.strip():
                        yield _of_line(line, where)
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


def _of_line(line: str, where: str) -> str:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise UserError(f"{where} is no JSON: each line of a JSONL file is one document") from None
    if isinstance(data, str):
        return data
    if isinstance(data, dict):
        for key in TEXT_KEYS:
            if isinstance(data.get(key), str):
                return data[key]
        turns = next(
            (data[key] for key in ("messages", "conversations", "turns") if isinstance(data.get(key), list)), []
        )
        said = [turn.get("content", turn.get("value")) if isinstance(turn, dict) else turn for turn in turns]
        texts = [text for text in said if isinstance(text, str)]
        if texts and len(texts) == len(said):
            return "\n".join(texts)
    raise UserError(f"{where} has no text: it needs one of {', '.join(TEXT_KEYS)}, messages or conversations")


def opened(path: str | Path, tokenizer: Any, progress: Callable[[int], None] | None = None) -> Datastore:
    """The datastore of a file, made where there is none yet for these bytes and this tokenizer (or where the kept one
    is damaged). ``progress`` is told the tokens read so far.

    Raises UserError for a file that is missing, empty or no text.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(f"there is no datastore file {path}: give a text or JSONL file")
    folder = cache_folder() / "datastores" / fingerprint(path, tokenizer)
    return _kept(folder) or _made(folder, path, tokenizer, progress)


def fingerprint(path: Path, tokenizer: Any) -> str:
    """What a datastore is kept under: the file's bytes, how it is split into documents, and the tokenizer's pieces."""
    digest = hashlib.sha256(f"{SCHEMA} {CHUNK} {LONGEST} {path.suffix}".encode())
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    digest.update(json.dumps(sorted(tokenizer.get_vocab().items())).encode())
    return digest.hexdigest()[:24]


def _kept(folder: Path) -> Datastore | None:
    """The datastore in a folder; None where there is none, or not all of it."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if about["schema"] != SCHEMA:
            return None
        chunks = []
        for number, (tokens, ends) in enumerate(about["chunks"]):
            chunk = [np.load(folder / f"{what}-{number}.npy", mmap_mode="r") for what in ("text", "ends")]
            if [len(array) for array in chunk] != [tokens, ends] or any(a.dtype != np.int32 for a in chunk):
                return None
            chunks.append(Chunk(*chunk))
        return Datastore(str(about["name"]), int(about["tokens"]), chunks)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _made(folder: Path, path: Path, tokenizer: Any, progress: Callable[[int], None] | None) -> Datastore:
    total, sizes = 0, []
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as new:
        for number, text in enumerate(_chunks(path, tokenizer)):
            total += int((text != SEPARATOR).sum())
            if total > MOST_TOKENS:
                raise UserError(f"{path.name} has more than {MOST_TOKENS:,} tokens: split it")
            ends = sorted_ends(text, LONGEST).astype(np.int32)
            np.save(new / f"text-{number}.npy", text.astype(np.int32))
            np.save(new / f"ends-{number}.npy", ends)
            sizes.append([len(text), len(ends)])
            if progress:
                progress(total)
        if not any(ends for _, ends in sizes):
            raise UserError(f"{path.name} holds no text: give one with at least a few words in it")
        about = {"schema": SCHEMA, "name": path.name, "tokens": total, "chunks": sizes}
        (new / ABOUT).write_text(json.dumps(about) + "\n", encoding="utf-8")
    made = _kept(folder)
    if made is None:
        raise UserError(f"the datastore of {path.name} cannot be read back from {folder}: is the disk full?")
    return made


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
