"""The model: loaded in the background, and exchanged for another one while the server goes on."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from decoders.errors import TooLarge
from decoders.model.files.catalog import precision_of, recorded_key
from decoders.trace.run import RunRecord
from specviz.words import sentence, short_number

from .runner import TRIM

MOST_OTHERS = 2  # models of recorded runs that are kept open beside the loaded one
LOOK_S = (0.2, 20.0)  # whether a model that was exchanged is still in use: at first, at most

log = logging.getLogger(__name__)

Tell = Callable[[str, float], None]  # what is being done, and how far it is (from 0 to 1)


@dataclass(slots=True)
class Coming:
    """A model that is loaded in place of the one in use: source, weights, name, who chose it, and how far it is."""

    model: str
    weights: str
    name: str
    requester: str
    text: str


class LoaderBusy(ValueError):
    """Another model is being loaded; after ``retry_s`` seconds one may ask again."""

    retry_s = 10


class Loader:
    """Loads the target in the background, and says in one line how that goes.

    ``state`` is none (nothing to load: viewing only), loading, ready or failed. ``number`` counts the models that were
    ready, so that pages notice another one. ``model`` is the source of the one in use, as ``--model`` takes it, and
    ``weights`` what it is opened on (``decoders.names.weight_names``).

    Args:
        load: Opens the first model; None for viewing only, for the ``reason``.
        other: Opens the model with a fingerprint, for runs that were made with it; None where it is not here.
        pick: Opens a model by its source, on weights, to be used in place of the loaded one; None where none may be
            chosen.
    """

    def __init__(
        self, load: Callable[[], Any] | None, *, reason: str = "", name: str = "", model: str = "",
        weights: str = "fp32", open_other: Callable[[str], Any] | None = None,
        pick: Callable[[str, str, Tell], Any] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.model, self.weights, self.pick = name, model, weights, pick
        self._open_other, self._other_targets = open_other, dict[str, Any]()
        self._opening = threading.Lock()  # the models of recorded runs
        self._reading = threading.Lock()  # weights, one model at a time: transformers has states that threads share
        self.target: Any = None
        self.state = "loading" if load else "none"
        self.text = f"Loading {name or 'the model'}" if load else reason
        self.number = 0
        self.coming: Coming | None = None
        self.refused: dict[str, str] | None = None  # the model that was chosen last and could not be loaded, and why
        self.changed: Callable[[], None] = lambda: None  # called when another model is in use
        self._load = load
        self._choice = threading.Lock()
        self._end_event = threading.Event()
        if load is None:
            self._end_event.set()

    def start(self) -> None:
        if self._load is not None:
            threading.Thread(target=self._work, name="load the model", daemon=True).start()

    def _work(self) -> None:
        assert self._load is not None
        began = time.perf_counter()
        try:
            self.target = self._load()
        except ImportError as problem:
            self.state, self.pick = "none", None
            missing = problem.name or "a package"
            self.text = (
                f"Recorded runs only: {missing} is not installed. Install the project's requirements to run methods."
            )
        except Exception as problem:
            if not isinstance(problem, ValueError | OSError):
                log.exception("the model could not be loaded")
            self.state = "failed"
            verb = "choose" if self.pick is not None else "restart with --model to use"
            self.text = f"{_reason(problem)} Recorded runs still open; {verb} another model."
        else:
            self._ready(began)
        self._load = None
        self._end_event.set()

    def _ready(self, began: float) -> None:
        self.text, self.state = describe(self.target.info), "ready"
        self.number += 1
        log.info("model ready after %.1f s: %s", time.perf_counter() - began, self.text)

    def tell(self, words: str, share: float) -> None:
        """Set the sentence on the loading of the first model, and its progress (from 0 to 1)."""
        self.text = f"{words}, {share:.0%}"

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until loading is over; whether it is."""
        return self._end_event.wait(timeout_s)

    # --- another model in its place ---

    def choose(
        self, model: str, name: str, user: str = "", check: Callable[[], None] = lambda: None, weights: str = "",
    ) -> Future[None]:  # fmt: skip
        """Load a model in the background; the one in use stays until the new one is ready, and stays where that fails.
        ``weights`` ("": those in use) are what it is opened on.

        ``check`` is done first, and raises where the model cannot be loaded. The future is done when ``check`` is: it
        raises the same. Choosing the model that is in use, or is being loaded, changes nothing. Raises Taken while
        another one is loaded.
        """
        check_future: Future[None] = Future()
        weights = weights or self.weights
        with self._choice:
            if self.pick is None:
                raise ValueError(self.text if self.state == "none" else "no other model can be loaded here")
            if self.state == "loading":
                raise LoaderBusy(f"{self.name or 'the model'} is still being loaded: choose when it is ready")
            if self.coming is not None and (self.coming.model, self.coming.weights) != (model, weights):
                by = f" by {self.coming.requester}" if self.coming.requester else ""
                raise LoaderBusy(f"{self.coming.name} is being loaded already, chosen{by}: choose when it is ready")
            self.refused = None
            in_use = self.state == "ready" and (model, weights) == (self.model, self.weights)
            if self.coming is not None or in_use:
                check_future.set_result(None)
                return check_future
            self.coming = coming = Coming(model, weights, name, user, f"Looking at {name}")
        threading.Thread(
            target=self._exchange, args=(coming, check, check_future), name="load another model", daemon=True
        ).start()
        return check_future

    def _exchange(self, coming: Coming, check: Callable[[], None], check_future: Future[None]) -> None:
        began = time.perf_counter()
        target = self._open(coming, check, check_future)
        if target is None:
            collect()  # what was read of it
            return
        old = None if self.target is None else weakref.ref(self.target)
        with self._opening:
            self._other_targets.clear()
        self.target, self.model, self.name, self.weights = target, coming.model, coming.name, coming.weights
        del target
        self._ready(began)
        self.coming = None
        self.changed()
        if old is not None:
            give_back(old)

    def _open(self, coming: Coming, check: Callable[[], None], check_future: Future[None]) -> Any:
        """The model that was chosen; None where it cannot be loaded, whatever the reason: ``refused`` says it."""
        assert self.pick is not None

        def tell(words: str, share: float) -> None:
            coming.text = f"{words}, {share:.0%}"

        try:
            self._make_room(check)
            check_future.set_result(None)
            coming.text = f"Loading {coming.name}"
            with self._reading:
                return self.pick(coming.model, coming.weights, tell)
        except BaseException as problem:
            if not isinstance(problem, ValueError | OSError):
                log.exception("%s could not be loaded", coming.model)
            self.refused = {"model": coming.model, "text": _reason(problem)}
            self.coming = None
            if not check_future.done():
                check_future.set_exception(problem)
            return None

    def _make_room(self, check: Callable[[], None]) -> None:
        """Do the check; where there is no room, once more without the models of recorded runs."""
        try:
            check()
        except TooLarge:
            if not self._other_targets:
                raise
            with self._opening:
                self._other_targets.clear()
            collect()
            check()

    # --- the models of recorded runs ---

    def model_of(self, run: RunRecord) -> Any:
        """The model that a recorded run was made with, opened now where it is here; else the loaded one."""
        loaded_model, key = self.target, recorded_key(run)
        if loaded_model is None or self._open_other is None or key in ("", loaded_model.key):
            return loaded_model
        with self._opening:
            if key in self._other_targets:
                return self._other_targets[key]
            try:
                with self._reading:
                    other_model = self._open_other(key)
            except (ValueError, OSError) as problem:
                log.warning("the model of a recorded run cannot be opened: %s", problem)
                other_model = None
            if other_model is None or loaded_model is not self.target:  # exchanged meanwhile: nothing of before stays
                return other_model or loaded_model
            self._other_targets = {**dict(list(self._other_targets.items())[1 - MOST_OTHERS :]), key: other_model}
            return other_model

    def load_beside(self, run: RunRecord) -> bool:
        """True where the model that a recorded run was made with is open beside the one in use."""
        return recorded_key(run) in self._other_targets

    def is_open(self, target: Any) -> bool:
        """True for the model in use, and for those kept open beside it."""
        return target is self.target or any(target is other_target for other_target in self._other_targets.values())

    def info(self) -> dict[str, Any]:
        """Facts for the page's pill; ``coming`` is the model that is being loaded in place of this one."""
        target, coming = self.target.info if self.target is not None else {}, self.coming
        return {
            "state": self.state, "text": self.text, "name": target.get("name") or self.name, "info": target,
            "number": self.number, "coming": None if coming is None else {"name": coming.name, "text": coming.text},
        }  # fmt: skip


def give_back(old: weakref.ref[Any]) -> None:
    """Wait until nothing uses a model that was exchanged, and give its memory back to the system.

    Runs that wait or go on keep it until they are over.
    """
    pause, longest_pause = LOOK_S
    while True:
        collect()
        if old() is None:
            return
        time.sleep(pause)
        pause = min(longest_pause, 2 * pause)


def collect() -> None:
    """Free what nothing uses any more, here and in the allocators of glibc and CUDA, which keep it."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()
    if TRIM is not None:
        TRIM(0)


def describe(info: Mapping[str, Any]) -> str:
    """A model in one line.

    >>> describe({"name": "demo", "parameters": 5_300_000, "dtype": "float32", "device": "cpu"})
    'demo · 5.3M parameters · float32 · cpu'
    >>> describe({"name": "a", "dtype": "float32", "dequantised": {"types": {"Q4_1": 210, "F32": 61}}})
    'a · float32, dequantised from Q4_1'
    >>> describe({"name": "a", "dtype": "float32", "weights": "int8", "device": "cpu"})
    'a · int8 · cpu'
    """
    count = info.get("parameters")
    size = f"{short_number(count)} parameters" if isinstance(count, int | float) and count > 0 else ""
    dtype, source = precision_of(info) if "dtype" in info else "", info.get("dequantised")
    if source:
        counts = dict(source["types"])
        kinds = sorted(counts, key=counts.__getitem__, reverse=True)
        quantised_kinds = [kind for kind in kinds if kind != "F32"] or kinds
        dtype = f"{dtype}, dequantised from {', '.join(quantised_kinds)}"
    return " · ".join(str(part) for part in (info.get("name"), size, dtype, info.get("device")) if part)


def _reason(problem: BaseException) -> str:
    """The reason why a model could not be loaded, in one sentence."""
    text = sentence(problem)
    if text.startswith("The device ran out of memory"):
        return "The memory was not enough to load it: choose a smaller model, or a smaller dtype (--dtype bfloat16)."
    return text.replace("The run stopped on", "Loading stopped on")
