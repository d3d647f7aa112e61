"""Headers of GGUF files: settings and shapes, read within the file's own bounds before a weight is."""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any

from decoders.errors import UserError, first_line

MAGIC = b"GGUF"
# letters of struct for the format's types of numbers and truth values, by their number
NUMBERS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")
TEXT, LIST = 8, 9
ALIGNMENT = 32  # bytes, of tensors where a file names no other
MAX_DIMENSIONS = 4  # of a tensor, as the format has it
MAX_ENTRIES = 1 << 23  # of all lists: the largest vocabularies have some 300,000 tokens and 500,000 merges


def read_header(file: Path) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Settings and shapes by tensor of a GGUF file. Raises UserError for a file that is none, or not whole."""
    check_magic(file)
    try:
        size = file.stat().st_size
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            settings, tensors, end = HeaderReader(data).read()
        if size < end:
            raise ValueError(f"{size:,} of {end:,} bytes are there")
        return settings, tensors
    except (ValueError, IndexError, TypeError, struct.error, ZeroDivisionError, OverflowError) as error:
        raise damage_error(file, error) from error


def check_magic(file: Path) -> None:
    """Raise UserError for a file that does not begin as a GGUF file does."""
    with file.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise UserError(f"{str(file)!r} is no GGUF file: it does not begin with the letters GGUF")


def damage_error(file: Path, error: Exception) -> UserError:
    """Sentence about a file that cannot be read to its end."""
    return UserError(
        f"{file.name} is truncated or damaged ({file.stat().st_size:,} bytes; {first_line(error, 120)}): "
        "download it again"
    )


class HeaderReader:
    """Settings and shapes of tensors at the beginning of a GGUF file.

    Written by hand: the package gguf makes arrays of every token of a vocabulary, which takes seconds.
    """

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at, self.entries = data, len(MAGIC), 0

    def read(self) -> tuple[dict[str, Any], dict[str, tuple[int, ...]], int]:
        """Settings, shapes by name, and where the last tensor ends."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        self.number("I")  # the format's version
        tensors, settings = self.number("Q"), self.number("Q")
        if max(tensors, settings) > len(self.data):
            raise ValueError(f"{max(tensors, settings):,} entries")
        read = {self.text(): self.value(self.number("I")) for _ in range(settings)}
        shapes, end = {}, 0
        for _ in range(tensors):
            name, dimensions = self.text(), self.number("I")
            if not 1 <= dimensions <= MAX_DIMENSIONS:
                raise ValueError(f"a tensor of {dimensions:,} dimensions")
            shapes[name] = tuple(self.number("Q") for _ in range(dimensions))
            numbers, width = GGML_QUANT_SIZES[GGMLQuantizationType(self.number("I"))]  # of a block
            end = max(end, self.number("Q") + math.prod(shapes[name]) // numbers * width)
        step = int(read.get("general.alignment", ALIGNMENT))
        return read, shapes, -(-self.at // step) * step + end

    def number(self, kind: str) -> Any:
        (value,) = struct.unpack_from(f"<{kind}", self.data, self.at)
        self.at += struct.calcsize(f"<{kind}")
        return value

    def text(self) -> str:
        length = self.number("Q")
        if self.at + length > len(self.data):
            raise ValueError("it ends within a text")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            return self.number(NUMBERS[kind])
        of, count = self.number("I"), self.number("Q")
        self.entries += count
        if of == LIST or self.entries > MAX_ENTRIES:
            raise ValueError("a list of lists" if of == LIST else f"lists of {self.entries:,} entries")
        if of != TEXT:  # numbers: at once
            values = struct.unpack_from(f"<{count}{NUMBERS[of]}", self.data, self.at)
            self.at += struct.calcsize(f"<{count}{NUMBERS[of]}")
            return list(values)
        return [self.value(of) for _ in range(count)]
