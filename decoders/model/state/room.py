"""Free memory, and a check that a run fits in it before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from decoders.draft.needs import Needs
from decoders.errors import TooLarge

from ..files.shape import ModelShape
from .recurrent import MOST_KEPT, SPACING
from .stores import Stores, capacity_for

SMALL = 64 << 20  # bytes: a run that needs no more is not looked at
DRAFT_ROWS = 64  # of a large draft, whose logits stay until they are recorded


@dataclass(frozen=True, slots=True)
class RunSize:
    """A run's memory beside the weights, in bytes.

    Args:
        cache: Of the keys and values.
        states: Of recurrent layers: the states themselves, those kept to be cut back to, and what a draft writes.
        kept: Of what its drafter reads: hidden states, queries, likeliest tokens.
        forward: Of the largest forward: its mask, its states, and the logits of a draft.
    """

    cache: int
    memory_bytes: int
    forward: int
    states: int = 0

    @property
    def bytes(self) -> int:
        return self.cache + self.states + self.memory_bytes + self.forward

    @classmethod
    def of(cls, shape: ModelShape, dtype: torch.dtype, needs: Needs, tokens: int, spare: int, rows: int) -> RunSize:
        """Of a run of so many tokens, with ``spare`` cache rows behind them and ``rows`` in its largest forward."""
        size, keys = dtype.itemsize, tokens + spare
        layers, kv_heads, head_dim = shape.cache_shape
        numbers = len(needs.layers) * shape.hidden + len(needs.heads) * head_dim
        states = rows * (4 * shape.hidden + 3 * shape.mlp + 3 * shape.heads * head_dim)
        masks = rows * keys * (1 + shape.heads // kv_heads)  # itself, and once per query head of a group
        logits = 2 * DRAFT_ROWS * shape.vocab * torch.float32.itemsize
        return cls(
            cache=2 * layers * kv_heads * head_dim * keys * size,
            memory_bytes=tokens * (numbers * size + needs.top_tokens * (torch.int64.itemsize + torch.float32.itemsize)),
            forward=(states + masks) * size + logits,
            states=shape.state_bytes * (2 + min(MOST_KEPT, tokens // SPACING)) + shape.row_bytes * DRAFT_ROWS,
        )


def check_room(name: str, size: RunSize, tokens: int, device: torch.device) -> None:
    """Raise TooLarge, with both numbers, where a run needs more memory than is free on its device."""
    if size.bytes <= SMALL:
        return
    free = free_memory(str(device))
    if free is None or size.bytes <= free:
        return
    largest = max(("cache", "memory_bytes", "forward", "states"), key=lambda part: getattr(size, part))
    mend = {
        "cache": "shorten the prompt or the answer, or choose a smaller dtype (--dtype bfloat16)",
        "memory_bytes": "shorten the prompt, calibrate the model (`specviz calibrate`) so that fewer heads are read, "
        "or choose a method that reads less",
        "forward": "shorten the prompt, or choose a smaller model",
        "states": "shorten the prompt or the answer, or choose a smaller model",
    }[largest]
    states = f"{gigabytes(size.states)} recurrent states, " if size.states else ""
    raise TooLarge(
        f"a run of {tokens:,} tokens with {name} needs about {gigabytes(size.bytes)} of memory ("
        f"{gigabytes(size.cache)} keys and values, {states}{gigabytes(size.memory_bytes)} for what the method reads, "
        f"{gigabytes(size.forward)} for a forward), and {gigabytes(free)} are free on {device}: {mend}"
    )


def make_room(
    name: str, size: RunSize, tokens: int, spare: int, device: torch.device, stores: Stores | None
) -> None:  # fmt: skip
    """Check a run as ``check_room`` does, where ``stores`` lend memory for its keys and values: what one of them holds
    already is not needed again, and all that wait for a run are given up before this one is refused.
    """
    rows, needed = tokens + spare, size
    if stores is not None:
        needed = replace(size, cache=0 if stores.has(rows) else size.cache * capacity_for(rows) // rows)
    try:
        check_room(name, needed, tokens, device)
    except TooLarge:
        if not Stores.drop_all():
            raise
        make_room(name, size, tokens, spare, device, stores)


def free_memory(device: str) -> int | None:
    """Bytes that can still be taken on a device; None where that is not known."""
    if torch.device(device).type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = _meminfo(Path("/proc/meminfo"))
    group = _left_of_group(Path("/sys/fs/cgroup"))
    numbers = [number for number in (free, group) if number is not None]
    return min(numbers) if numbers else None


def gigabytes(count: int) -> str:
    """Bytes as people read them.

    >>> gigabytes(1_540_000_000), gigabytes(20_400_000)
    ('1.5 GB', '20 MB')
    """
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def _meminfo(file: Path) -> int | None:
    """Bytes that Linux can give to programs without swapping; None elsewhere."""
    try:
        lines = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, ValueError, KeyError, IndexError):
        return None


def _left_of_group(folder: Path) -> int | None:
    """Bytes that a container may still take; None where there is no limit. Files that are only cached can go."""
    try:
        limit = int((folder / "memory.max").read_text())
        usage = int((folder / "memory.current").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(0, limit - usage + int(stat.get("inactive_file", 0)) + int(stat.get("active_file", 0)))
    except (OSError, ValueError):
        return None
