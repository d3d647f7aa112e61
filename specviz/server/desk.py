"""Services that any page may ask for: methods, a token count, a run, a file. Every argument is checked here.

Pages (and the named API) go through one ``Desk``; it ties the model, the queue and the stored runs together. Which
pages there are it is told: it knows none of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from decoders.draft.params import Control, controls
from decoders.errors import capital
from decoders.model.files.catalog import BUNDLED, toy_note
from decoders.names import BASELINE, COMPARED_METHODS, UNDER, USUAL
from decoders.trace import files as tracefile
from decoders.trace.run import RunRecord
from decoders.trace.trace import Trace
from specviz.places import is_id, new_id
from specviz.words import sentence

from .cards import judges, of_model, part_training, verifier_cards
from .counter import Counter
from .forms import MAX_POOL, PromptForm, Refusal, RunSettings, check_grammar, checked_params, too_long
from .job import Job
from .library import Library
from .limits import Rules
from .loader import Loader
from .runner import Runner
from .server_files import import_runs
from .store import FAIR_SHARE, TraceStore, UnknownTrace

Work = TypeVar("Work", bound=Callable[..., Any])
log = logging.getLogger(__name__)
# a method's facts as the browser has them
CARD = ("name", "title", "paper", "summary", "lossless", "keeps", "signal", "family")


def get(path: str = "", verb: str = "GET") -> Callable[[Work], Work]:
    """Marks what answers ``/api/<page>/<path>``: a method of the page's service."""

    def mark(work: Work) -> Work:
        setattr(work, "route", (verb, path))  # noqa: B010
        return work

    return mark


post = partial(get, verb="POST")  # of what is sent as JSON


class Service:
    """A page: what its tab holds, and what it does on a server. A folder of ``specviz/pages`` has one as a subclass.

    ``name`` is the folder's and ``title`` the tab's (without it there is none); the tab holds one place, which the
    script ``module`` fills. A view with a title of ``tool`` stands in the list of a page that ``lists_tools``, where
    ``about`` is said of it, or in a tab where there is no such page. Methods marked with ``get`` and ``post`` are what
    the page's scripts ask for: their parameters are what is sent, as FastAPI reads them, and what they return is the
    answer (``{"done": …}`` where it is no object). ``cannot`` begins the sentence about anything else that is asked.
    """

    name: str
    title = ""
    cannot = "This page cannot"
    order = 100
    module = ""
    tool = ""
    about = ""
    lists_tools = False

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def begin(self) -> None:
        """The server starts."""

    def close(self) -> None:
        """The server goes down: stop what is under way."""

    def model_changed(self) -> None:
        """Another model is in use: let go of the one before, and of what was found out with it."""

    def bring(self, key: str) -> bool:
        """Put a run that only this page keeps into the store. Whether there is such a run."""
        return False


class Desk(Counter):
    """Model, queue and stored runs behind one counter, and the services of the pages by their names."""

    def __init__(
        self,
        store: TraceStore,
        runner: Runner,
        loader: Loader,
        *,
        methods: Callable[[], Mapping[str, Any]] | None = None,
        pages: Iterable[type[Service]] = (),
    ) -> None:
        super().__init__(runner, loader)
        self.store = store
        self._methods = methods or _registry
        self.first = ""  # the run the page opens on
        self.device: str | None = None  # where models are opened, as ``load_target`` takes it
        self.dtype: str | None = None  # in which dtype
        self.engine: str | None = None  # and under which engine
        self.library: Library | None = None
        self.rules = Rules()
        self.services: dict[str, Any] = {page.name: page(self) for page in pages}
        loader.changed = self._model_changed

    def keep_to(self, rules: Rules) -> None:
        """Set the limits of users of this server, from now on."""
        self.rules = rules
        self.runner.keep_to(rules)
        self.store.own_share = 0.1 if rules.is_shared else 0.5
        self.store.fair_share = FAIR_SHARE if rules.is_shared else 1.0  # browsers of one user do not compete

    def begin(self) -> None:
        """Load the model and find earlier runs, both in the background; those that were cut off at once, as pages that
        show them ask first.
        """
        if self.library is not None:
            self._find(self.library.recover)
        self.loader.start()
        self.runner.begin()
        for service in self.services.values():
            service.begin()
        if self.library is not None:
            work = self.library.restore
            threading.Thread(target=self._find, args=(work,), name="find earlier runs", daemon=True).start()

    def end(self) -> None:
        """Stop all runs; what they decoded is kept."""
        for service in self.services.values():
            service.close()
        self.runner.close()
        if self.runner.pool is not None:
            self.runner.pool.close()
        if self.library is not None:
            self.library.close()

    def _find(self, work: Callable[..., None]) -> None:
        try:
            work(self.store, shared=self.rules.is_shared)
        except OSError as problem:
            log.warning("earlier runs are not listed: %s", problem)

    def _model_changed(self) -> None:
        self.memory.clear()
        for service in self.services.values():
            try:
                service.model_changed()
            except Exception:
                log.exception("page %s holds on to the model of before", service.name)

    # --- what there is ---

    @property
    def note(self) -> str:
        """A note on the model in use for users, beside the editor."""
        return toy_note(can_pick=self.loader.pick is not None) if self.loader.model == BUNDLED else ""

    @property
    def toy(self) -> bool:
        """True where the model in use is the bundled target, which has examples of its own."""
        return self.loader.model == BUNDLED

    def methods(self) -> Mapping[str, Any]:
        """The registered methods by name."""
        return self._methods()

    def target_of(self, run: RunRecord) -> Any:
        """The model that a recorded run was made with, where it is here; else the loaded one. Raises Refusal.

        It is opened beside the loaded one where there is room for both, and stays until another model is chosen.
        """
        return self.loader.model_of(run) if self.target() is not None else None

    def catalog(self) -> dict[str, Any]:
        """Methods with their controls, the verifiers that can judge their drafts (then the method's name is
        ``METHOD@VERIFIER``), the settings of every run, and the method of the run that the page opens on. ``reason``
        says why nothing can be run, if so.
        """
        cards: list[dict[str, Any]] = []
        if self.loader.state != "none":
            with contextlib.suppress(ImportError):
                cards = [self._describe(method) for method in self._methods().values()]
        return {
            "methods": cards,
            "verifiers": verifier_cards() if any(entry["judges"] for entry in cards) else [],
            "settings": [dataclasses.asdict(bound) for c in controls(RunSettings) if (bound := self._bound(c))],
            "reason": self.reason(),
            "note": " ".join([self.note, *self._left_out()]).strip(),
            "state": self.loader.state,
            "opening": self._opening(),
        }

    def _left_out(self) -> list[str]:
        """A sentence for every plug-in that cannot be used, for whoever may know of files on this machine."""
        if self.rules.is_shared or self._methods is not _registry or self.loader.target is None:
            return []
        from decoders.drafters import plugin_problems

        return [f"{capital(problem)}." for problem in plugin_problems()]

    def _opening(self) -> str:
        """The method of the run that the page opens on; "" where there is none."""
        entry = self.store.entry(self.first)
        return "" if entry is None else str(entry.summary.get("method_name", ""))

    def _bound(self, control: Control) -> Control | None:
        """A setting's control as this server and its model have it; None for one that changes nothing here."""
        if control.name == "max_new_tokens":
            return dataclasses.replace(control, high=self.rules.new_tokens)
        if control.name != "processors":
            return control
        config = getattr(getattr(self.loader.target, "model", None), "generation_config", None)
        if config is None:
            return None
        from decoders.model.target_model.own_settings import list_applied

        names = ", ".join(list_applied(config))
        return dataclasses.replace(control, help=f"{control.help} Here: {names}.") if names else None

    def _describe(self, method: Any) -> dict[str, Any]:
        target = self.loader.target
        missing, pooled = None, False
        if target is not None:
            try:
                missing, pooled = method.missing(target), self._needs_pool(method, method.params())
            except Exception as problem:
                log.exception("method %s cannot say what it needs", method.name)
                missing = sentence(problem)
        return {
            **{name: getattr(method, name) for name in CARD},
            "baseline": method.name == BASELINE,
            "usual": method.name == USUAL,
            "compared": method.name in COMPARED_METHODS,
            "trained": part_training(method, target),
            "pooled": pooled,
            "missing": missing or "",
            "judges": judges(method),
            "verifier_params": [*getattr(method, "verifier_params", ())],
            # those that name files are for the commands
            "controls": [dataclasses.asdict(of_model(c, target)) for c in controls(method.params) if c.kind != "str"],
        }

    def _needs_pool(self, method: Any, params: Any, target: Any = None) -> bool:
        """True for a method that drafts from a pool of text; False while there is no model to ask for."""
        target = target or self.loader.target
        return target is not None and not method.missing(target) and bool(method.needs(target, params).pool)

    def bring(self, key: str) -> bool:
        """Put a run that only the disk has into the store. Whether there is such a run."""
        if self.library is not None and self.library.bring(key, self.store, shared=self.rules.is_shared):
            return True
        return any(service.bring(key) for service in self.services.values())

    def has(self, key: str) -> bool:
        """True for a run that is in the store or the library, without reading it."""
        return key in self.store or (self.library is not None and key in self.library)

    def trace(self, key: object) -> Trace:
        """A run that is over, from the store or the disk. Raises UnknownTrace."""
        if not isinstance(key, str) or not is_id(key):
            raise UnknownTrace(str(key)[:40])
        if key not in self.store:
            self.bring(key)
        return self.store.get(key)

    # --- what may be asked ---

    def count(self, form: PromptForm) -> str:
        """The prompt's share of the model's context, in words; Refusal where it does not fit."""
        target, text = self.loader.target, form.typed_text
        if target is None or not text.strip():
            return f"{len(text):,} characters" if text.strip() else ""
        count = len(form.prompt(target.tokenizer).tokens)
        limit = target.context_length
        if count >= limit:
            raise Refusal("prompt", too_long(count, limit))
        return f"{count:,} of {limit:,} tokens"

    def submit(
        self,
        form: PromptForm,
        method: str,
        params: Mapping[str, Any],
        settings: Mapping[str, Any],
        *,
        title: str = "",
        owner: str = "",
        session: str = "",
        target: Any = None,
        seat: str = "",
    ) -> Job:
        """Queue a run, with ``target`` if not the loaded model; on the backend ``seat`` if that is named. Raises
        Refusal with the place and the sentence.
        """
        target = target or self.target()
        chosen_method, prompt, values, common = self.prepare(form, method, params, settings, target)
        name = title or form.title
        if self.uses_backends(target):
            options = self._options(method, name, values, common)
            return self.queue_away(chosen_method, prompt, options, owner=owner, session=session, seat=seat)
        build = partial(self.run_of, target, prompt, method, name, params=values, settings=common)
        return self.queue(build, title=name, owner=owner, session=session)

    def prepare(
        self, form: PromptForm, method: str, params: Mapping[str, Any], settings: Mapping[str, Any], target: Any
    ) -> tuple[Any, Any, dict[str, Any], RunSettings]:
        """A run's method, prompt, parameters and settings, checked. Raises Refusal with the place and the sentence."""
        chosen_method, method_params = self.params_of(method, params, target)
        common = checked_params(RunSettings, settings)
        self.check_size(form, common.max_new_tokens)
        pooled = self._needs_pool(chosen_method, method_params, target)
        prompt = form.whole(target.tokenizer, pooled=pooled)
        if pooled and prompt.pool is None and prompt.context_pool() is None:
            raise Refusal(
                "prompt",
                f"{chosen_method.title} drafts from a context, and this prompt has none: fill in Context (form "
                "“Segments”), "
                "or add a pool file under More.",
            )
        may_shorten = chosen_method.prompt is not None  # by how much, only the run knows
        if len(prompt.tokens) >= target.context_length and not may_shorten:
            raise Refusal("prompt", too_long(len(prompt.tokens), target.context_length))
        check_grammar(prompt, target)
        return chosen_method, prompt, dataclasses.asdict(method_params), common

    def check_size(self, form: PromptForm | str, new_tokens: int = 0) -> None:
        """Raises Refusal where a prompt, or as many new tokens, are more than this server takes."""
        size = len(form) if isinstance(form, str) else len(form.typed_text)
        if size > self.rules.prompt:
            raise Refusal(
                "prompt",
                f"The prompt has {size:,} characters and at most {self.rules.prompt:,} are taken here: shorten it.",
            )
        limit = min(MAX_POOL, self.rules.upload_bytes)
        if isinstance(form, PromptForm) and (pool_size := len(form.pool_text.encode("utf-8", "replace"))) > limit:
            raise Refusal(
                "pool",
                f"The pool file {form.pool_name} has {pool_size / (1 << 20):.1f} MiB and at most {limit >> 20} MiB are "
                "taken: give a part of it.",
            )
        if new_tokens > self.rules.new_tokens:
            raise Refusal(
                "method",
                f"{new_tokens:,} new tokens were asked for and at most {self.rules.new_tokens:,} are made here: "
                "ask for fewer.",
            )

    def params_of(self, name: str, params: Mapping[str, Any], target: Any = None) -> tuple[Any, Any]:
        """A method and its parameters, checked, for the loaded model or ``target``. Raises Refusal with the place and
        the sentence.
        """
        methods = self._methods()
        if name not in methods:
            base, _, rule = str(name).partition(UNDER)
            if rule and (verifiers := judges(methods.get(base))):
                names = ", ".join(verifiers)
                raise Refusal("method", f"There is no verifier {rule[:40]!r} for {base}: choose one of {names}.")
            raise Refusal("method", f"There is no method {str(name)[:40]!r}: choose one of {', '.join(methods)}.")
        method = methods[name]
        target = target or self.loader.target
        if target is not None and (missing := method.missing(target)):
            raise Refusal("method", missing)
        values = checked_params(method.params, params)
        if target is not None and (missing := method.missing(target, values)):
            raise Refusal("method", missing)
        return method, values

    def run_of(
        self,
        target: Any,
        prompt: Any,
        method: str,
        title: str,
        cancel: threading.Event,
        *,
        params: dict[str, Any],
        settings: RunSettings,
    ) -> Any:
        """The run itself, made when its turn comes."""
        from decoders import Run

        return Run(target, prompt, **self._options(method, title, params, settings), cancel=cancel)

    def _options(self, method: str, title: str, params: dict[str, Any], settings: RunSettings) -> dict[str, Any]:
        from decoders import Sampling
        from decoders.model.target_model.own_settings import NEUTRAL

        lossy = not self._methods()[method].lossless
        return {
            "method": method, "params": params, "title": title,
            "sampling": Sampling(settings.temperature, settings.top_k, settings.top_p, settings.seed),
            "max_new_tokens": settings.max_new_tokens, "length": settings.length,
            "generation": {} if settings.processors else dict(NEUTRAL),
            "compare": lossy or (settings.compare and method != BASELINE),
        }  # fmt: skip

    def open_file(self, source: str | Path | bytes, *, owner: str = "") -> str:
        """Put a trace file, or what is in a server's answer or log, among the owner's runs; returns the id (of several
        requests the first one's). Raises Refusal with the sentence.
        """
        size = (
            len(source) if isinstance(source, bytes) else Path(source).stat().st_size if Path(source).is_file() else 0
        )
        if size > self.rules.upload_bytes:
            raise Refusal(
                "file", f"This file has {size / (1 << 20):.1f} MiB and at most {self.rules.upload} MiB are opened here."
            )
        data = source if isinstance(source, bytes) else Path(source).read_bytes() if size else b""
        try:
            traces = [tracefile.load(source)]
        except tracefile.TraceError as problem:
            traces = import_runs(data, problem)
        for trace in reversed(traces):
            trace.run["id"] = new_id()  # never the file's own: it could name somebody else's run
            trace.run["complete"] = True
            key = self.store.put(trace, kind="opened", owner=owner)
        return key


def _registry() -> Mapping[str, Any]:
    from decoders import methods

    return methods()
