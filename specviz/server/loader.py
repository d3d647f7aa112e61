"""The model, loaded in the background."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from decoders.model.catalog import current_key
from specviz.words import sentence

MOST_OTHERS = 2  # models of recorded runs that are kept open beside the loaded one

log = logging.getLogger(__name__)


class Loader:
    """Loads the target in the background, and says in one line how that goes.

    ``state`` is none (nothing to load: viewing only), loading, ready or failed. ``other`` opens the model with a
    fingerprint, for runs that were made with it; None where it is not here.
    """

    def __init__(
        self, load: Callable[[], Any] | None, *, reason: str = "", name: str = "",
        other: Callable[[str], Any] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._other, self._others = other, dict[str, Any]()
        self._opening = threading.Lock()
        self.target: Any = None
        self.state = "loading" if load else "none"
        self.text = f"Loading {name or 'the model'}" if load else reason
        self._load = load
        self._done = threading.Event()
        if load is None:
            self._done.set()

    def start(self) -> None:
        if self._load is not None:
            threading.Thread(target=self._work, name="load the model", daemon=True).start()

    def _work(self) -> None:
        assert self._load is not None
        began = time.perf_counter()
        try:
            self.target = self._load()
        except ImportError as problem:
            self.state = "none"
            missing = problem.name or "a package"
            self.text = (
                f"Recorded runs only: {missing} is not installed. Install the project's requirements to run methods."
            )
        except Exception as problem:
            if not isinstance(problem, ValueError | OSError):
                log.exception("the model could not be loaded")
            self.state = "failed"
            self.text = f"{sentence(problem)} Recorded runs still open; restart with --model to use another model."
        else:
            self.state = "ready"
            self.text = describe(self.target.info)
            log.info("model ready after %.1f s: %s", time.perf_counter() - began, self.text)
        self._done.set()

    def tell(self, words: str, share: float) -> None:
        """What is being done while the model loads, and how far it is (from 0 to 1)."""
        self.text = f"{words}, {share:.0%}"

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until loading is over; whether it is."""
        return self._done.wait(timeout_s)

    def made(self, run: Mapping[str, Any]) -> Any:
        """The model that a recorded run was made with, opened now where it is here; else the loaded one."""
        key = current_key(str((run.get("model") or {}).get("key") or ""))
        if self.target is None or self._other is None or key in ("", self.target.key):
            return self.target
        with self._opening:
            if key in self._others:
                return self._others[key]
            try:
                opened = self._other(key)
            except (ValueError, OSError) as problem:
                log.warning("the model of a recorded run cannot be opened: %s", problem)
                opened = None
            if opened is None:
                return self.target
            self._others = {**dict(list(self._others.items())[1 - MOST_OTHERS :]), key: opened}
            return opened

    def info(self) -> dict[str, Any]:
        """What the page's pill shows."""
        target = self.target.info if self.target is not None else {}
        return {"state": self.state, "text": self.text, "name": target.get("name") or self.name, "info": target}


def describe(info: Mapping[str, Any]) -> str:
    """A model in one line.

    >>> describe({"name": "demo", "parameters": 5_300_000, "dtype": "float32", "device": "cpu"})
    'demo · 5.3M parameters · float32 · cpu'
    >>> describe({"name": "a", "dtype": "float32", "dequantised": {"types": {"Q4_1": 210, "F32": 61}}})
    'a · float32, dequantised from Q4_1'
    """
    count = info.get("parameters")
    size = ""
    if isinstance(count, int | float) and count > 0:
        value, unit = (count / 1e9, "B") if count >= 1e9 else (count / 1e6, "M") if count >= 1e6 else (count / 1e3, "k")
        size = f"{value:.3g}{unit} parameters"
    dtype, source = info.get("dtype"), info.get("dequantised")
    if source:
        counts = dict(source["types"])
        ordered = sorted(counts, key=counts.__getitem__, reverse=True)
        quantised = [kind for kind in ordered if kind != "F32"] or ordered
        dtype = f"{dtype}, dequantised from {', '.join(quantised)}"
    return " · ".join(str(part) for part in (info.get("name"), size, dtype, info.get("device")) if part)
