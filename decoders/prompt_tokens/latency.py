"""L(n): how long a decode step of n rows takes on this machine with this model, measured once and kept (PPD §4.2.2).

A step is all of it, as a run takes it: drafting, the verify forward, the decision, keeping what was accepted.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decoders.folders import read_own, reading, settings_folder, write_json
from decoders.model.engines.machine import processor_name
from decoders.model.files.catalog import precision_of
from decoders.model.target_model.target import Target
from decoders.trace.speedup import WIDEST

SCHEMA = "speclatency/2"  # 1 timed the forward alone


@dataclass(frozen=True, slots=True)
class Setup:
    """The setting that a latency belongs to; measured again when any of it differs."""

    device: str
    model_key: str
    dtype: str
    threads: int
    torch: str
    packed: bool
    engine: str
    weights: str = "fp32"  # ``precision_of`` a model on rounded ones

    @classmethod
    def of(cls, target: Target) -> Setup:
        """This machine with this model, as it was loaded."""
        threads = torch.get_num_threads() if target.device.type == "cpu" else 0
        weights = precision_of(target.info) if "weights" in target.info else "fp32"
        return cls(
            device_name(target.device), target.key, str(target.info["dtype"]), threads, torch.__version__,
            bool(target.info["packed"]), target.engines.engine, weights,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The name its file is kept under."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of a decode step by its rows: median and quartiles of ``rounds`` steps each, taken in
    alternation behind ``context`` cached tokens. ``attempts`` counts the measurements until they were quiet.
    """

    setup: Setup
    model: str
    context: int
    rows: tuple[int, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    rounds: int
    attempts: int = 1

    @property
    def largest(self) -> int:
        """Rows up to which it was measured."""
        return self.rows[-1]

    def ms(self, rows: int) -> float:
        """L(n), straight lines between the measured points. Raises ValueError beyond the largest."""
        if not 1 <= rows <= self.largest:
            raise ValueError(f"the latency of {rows} rows is not known: 1 to {self.largest} were measured")
        return float(np.interp(rows, self.rows, self.median))

    @property
    def spreads(self) -> tuple[float, ...]:
        """IQR ÷ median of each point."""
        return tuple((b - a) / m for a, m, b in zip(self.low, self.median, self.high, strict=True))

    @property
    def note(self) -> str:
        """One sentence where the measurement was disturbed; "" where it was quiet."""
        wide = [n for n, spread in zip(self.rows, self.spreads, strict=True) if spread > WIDEST]
        if not wide:
            return ""
        return (
            f"the latency of {', '.join(map(str, wide))} rows varies by up to {max(self.spreads):.0%} (IQR ÷ median) "
            f"even after {self.attempts} measurements: something else was running; measure it again when the machine "
            "is idle (specviz tree latency --again)"
        )

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> Latency:
        """Back from ``to_json``. Raises ValueError in one sentence for anything else."""
        with reading(data, SCHEMA, "latency"):
            rows = tuple(int(n) for n in data["rows"])
            times = {key: tuple(float(x) for x in data[key]) for key in ("median", "low", "high")}
            latency = cls(
                Setup(**data["setup"]), str(data["model"]), int(data["context"]), rows, **times,
                rounds=int(data["rounds"]), attempts=int(data["attempts"]),
            )  # fmt: skip
        increasing = len(rows) > 0 and rows[0] == 1 and all(a < b for a, b in pairwise(rows))
        sane = all(len(t) == len(rows) and all(0 < x < math.inf for x in t) for t in times.values())
        if not increasing or not sane:
            raise ValueError("a damaged latency (its rows and times do not fit together)")
        return latency


def load_latency(target: Target) -> Latency | None:
    """Latencies of this model on this machine, in this dtype and with as many threads; None if nothing was."""
    setup = Setup.of(target)
    latency = read_own(latency_folder() / f"{setup.name}.json", Latency.from_json)
    return latency if latency is not None and latency.setup == setup else None


def save_latency(latency: Latency) -> Path:
    """Keep it where ``load_latency`` finds it, whole or not at all."""
    return write_json(latency_folder() / f"{latency.setup.name}.json", latency.to_json())


def latency_folder() -> Path:
    """The folder of latencies: ``SPECVIZ_HOME``/latency, or beside the user's settings."""
    return settings_folder() / "latency"


def device_name(device: torch.device) -> str:
    """The processor or accelerator by its maker's name, with its cores; no name of a host."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {os.cpu_count() or 1} cores"
