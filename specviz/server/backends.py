"""Which backends stand behind the app, as ``--backends`` names them, and how they open the model."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.method.plugin_files import plugin_files
from decoders.model.catalog import precision_of
from specviz.workers.backends import Hosting
from specviz.workers.kinds import BACKENDS, backends_of
from specviz.workers.plain import code_of
from specviz.workers.processes import worker_device

from .hosted import PACKAGES, open_model
from .pool import Pool

if TYPE_CHECKING:
    from decoders import Target

MOST = 256
SPELT = re.compile(r"([a-z]+):(\d{1,4})")


@dataclass(frozen=True, slots=True)
class Backends:
    """``count`` backends of a ``kind`` (``workers.kinds.BACKENDS``) with so many ``threads`` each; 0 shares this
    machine's cores out among processes, and gives every actor of Ray's one.
    """

    kind: str
    count: int
    threads: int = 0
    ray_address: str = ""

    @classmethod
    def spelt(cls, text: str, *, threads: int = 0, ray_address: str = "") -> Backends:
        """From ``KIND:N``. Raises UserError.

        >>> Backends.spelt("local:2")
        Backends(kind='local', count=2, threads=0, ray_address='')
        """
        parts = SPELT.fullmatch(text.strip())
        if parts is None or parts[1] not in BACKENDS or not 1 <= int(parts[2]) <= MOST:
            kinds = ", ".join(f"{name}:N ({what})" for name, what in BACKENDS.items())
            raise UserError(f"--backends {text[:40]!r} names no backends: give {kinds}, with N from 1 to {MOST}")
        if ray_address and parts[1] != "ray":
            raise UserError("--ray-address is for --backends ray:N: leave one of them out")
        return cls(parts[1], int(parts[2]), threads, ray_address)

    @property
    def threads_each(self) -> int:
        shared = max(1, (os.cpu_count() or 1) // self.count) if self.kind == "local" else 1
        return self.threads or shared

    def pool(self) -> Pool:
        """Not begun yet. Raises UserError where what they need is not installed."""
        return Pool(backends_of(self.kind, self.count, self.threads_each, self.ray_address))

    def hosting(self, target: Target, opening: Mapping[str, Any], drafter: str | None = None) -> Hosting:
        """How each opens the model that the app has opened; ``opening`` as ``load_target`` takes it."""
        device, gpus = worker_device(target.device.type, opening.get("device"), apart=self.kind == "ray")
        about = {
            "opening": {**opening, "device": device, "dtype": str(target.info["dtype"])},
            "key": target.key, "precision": precision_of(target.info), "code": code_of(PACKAGES), "drafter": drafter,
            "plugins": [str(path) for path in plugin_files()],
        }  # fmt: skip
        return Hosting(open_model, about, self.threads_each, gpus)
