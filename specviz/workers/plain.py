"""A hash of the code: what workers compare before they work."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

from decoders.method.plugin_files import plugin_files

SOURCES = ("*.py", "*.toml", "*.txt")


@functools.cache
def code_of(packages: Sequence[str]) -> str:
    """A hash of the code of some packages ("specviz/server"), and of the versions of what computes for them."""
    import torch
    import transformers

    root = Path(__file__).resolve().parents[2]
    files = sorted(path for name in packages for form in SOURCES for path in (root / name).rglob(form))
    named = hashlib.sha256(f"{torch.__version__.partition('+')[0]} {transformers.__version__}".encode())
    for path in [*files, *plugin_files()]:
        named.update(path.name.encode() + path.read_bytes())
    return named.hexdigest()[:24]
