"""Headers of safetensors files: the tensors' shapes and sizes, before a weight is read."""

from __future__ import annotations

import math
import re
from pathlib import Path

from decoders.errors import UserError, first_line
from decoders.folders import refuse_pointer


def tensor_sizes(file: Path) -> dict[str, tuple[tuple[int, ...], int]]:
    """Name → shape and bytes of a safetensors file's tensors. Raises UserError for a damaged file."""
    from safetensors import SafetensorError, safe_open

    refuse_pointer(file)
    sizes = {}
    try:
        with safe_open(file, framework="np") as tensor_file:
            for name in tensor_file.keys():  # noqa: SIM118 (it is no dict)
                tensor = tensor_file.get_slice(name)
                shape = tuple(tensor.get_shape())
                bits = int((re.findall(r"\d+", tensor.get_dtype()) or [8])[0])  # of F8_E4M3, 8; of BOOL, 8
                sizes[name] = shape, math.prod(shape) * bits // 8
    except (SafetensorError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UserError(f"{file} cannot be read: {error.strerror or first_line(error)}") from error
        raise UserError(f"{file} is truncated or damaged ({first_line(error, 120)}): bring it again") from error
    return sizes
