"""Headers of safetensors files: the tensors' shapes and sizes, before a weight is read."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from decoders.errors import UserError, first_line
from decoders.folders import refuse_pointer

MOST_HEADER = 100 << 20  # bytes, as the format has it


def tensor_sizes(file: Path) -> dict[str, tuple[tuple[int, ...], int]]:
    """Name → shape and bytes of a safetensors file's tensors. Raises UserError for a damaged file."""
    refuse_pointer(file)
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > MOST_HEADER:
                raise ValueError(f"a header of {length:,} bytes")
            header = json.loads(opened.read(length))
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        whole = 8 + length + max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
        if file.stat().st_size < whole:
            raise ValueError(f"{file.stat().st_size:,} of {whole:,} bytes are there")
        return {
            name: (tuple(map(int, entry["shape"])), int(entry["data_offsets"][1]) - int(entry["data_offsets"][0]))
            for name, entry in tensors.items()
        }
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or first_line(error)}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
        raise UserError(f"{file} is truncated or damaged ({first_line(error, 120)}): bring it again") from error
