"""What a page may ask for: the methods, a token count, a run, a file to open. Every argument is checked here.

Pages (and the named API) go through one ``Desk``; it ties the model, the queue and the stored runs together.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.draft.params import Control, controls
from decoders.folders import ASSETS
from specviz.pages.attribution.service import Attributions
from specviz.pages.compare.service import Compare
from specviz.pages.lab.service import Lab
from specviz.pages.lessons.service import Lessons
from specviz.pages.trees.service import Trees
from specviz.pages.whatif.service import WhatIfs

from .library import Library
from .limits import Rules
from .runner import Job, Loader, QueueFull, Runner, sentence
from .store import EVERYBODY, MAX_TAGS, MAX_TITLE, TraceStore, checked_tag, new_id

if TYPE_CHECKING:
    pass
from .forms import MAX_POOL, PromptForm, Rejected, RunSettings, _checked, _control, _too_long

log = logging.getLogger(__name__)

GALLERY = ASSETS / "gallery"
BUNDLED = ASSETS / "demo" / "target"
MAX_EXPERIMENTS, MAX_PUBLIC_RUNS = 2, 100  # of one user at a time, of one experiment


class Desk:
    """Model, queue and stored runs behind one counter."""

    def __init__(
        self,
        store: TraceStore,
        runner: Runner,
        loader: Loader,
        *,
        methods: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.store, self.runner, self.loader = store, runner, loader
        self._methods = methods or _registered
        self.first = ""  # the run the page opens on
        self.library: Library | None = None
        self.rules = Rules()
        self.lab = Lab(self)
        self.trees = Trees(self)
        self.compare = Compare(self)
        self.lessons = Lessons(self)
        self.attribution = Attributions(self)
        self.whatif = WhatIfs(self)

    def keep_to(self, rules: Rules) -> None:
        """What users of this server may do, from now on."""
        self.rules = rules
        self.runner.keep_to(rules)
        self.store.own_share = 0.1 if rules.shared else 0.5

    def begin(self) -> None:
        """Load the model and find earlier runs, both in the background."""
        self.loader.start()
        self.trees.begin()
        if self.library is not None:
            threading.Thread(target=self._restore, args=(self.library,), name="find earlier runs", daemon=True).start()

    def end(self) -> None:
        """Stop all runs; what they decoded is kept."""
        self.lab.close()
        self.compare.close()
        self.trees.close()
        self.attribution.close()
        self.runner.close()
        if self.library is not None:
            self.library.close()

    def _restore(self, library: Library) -> None:
        try:
            library.restore(self.store, shared=self.rules.shared)
        except OSError as problem:
            log.warning("earlier runs are not listed: %s", problem)

    # --- what there is ---

    def methods(self) -> Mapping[str, Any]:
        """The registered methods by name."""
        return self._methods()

    def catalog(self) -> dict[str, Any]:
        """Methods with their controls, and the settings of every run. ``reason`` says why nothing can be run, if so."""
        reason = ""
        if self.loader.state in ("none", "failed"):
            reason = self.loader.text
        elif self.loader.state == "loading":
            reason = "The model is still loading."
        found = []
        if self.loader.state != "none":
            try:
                found = [self._described(m) for m in self._methods().values()]
            except ImportError:
                found = []
        return {
            "methods": found,
            "settings": [_control(self._bounded(c)) for c in controls(RunSettings)],
            "reason": reason,
            "state": self.loader.state,
        }

    def _bounded(self, control: Control) -> Control:
        return dataclasses.replace(control, high=self.rules.new_tokens) if control.name == "max_new_tokens" else control

    def _described(self, method: Any) -> dict[str, Any]:
        target = self.loader.target
        missing = None
        if target is not None:
            try:
                missing = method.available(target)
            except Exception as problem:
                log.exception("method %s cannot say whether it is available", method.name)
                missing = sentence(problem)
        return {
            "name": method.name,
            "title": method.title,
            "paper": method.paper,
            "summary": method.summary,
            "lossless": method.lossless,
            "pooled": self._pooled(method, method.params()),
            "missing": missing or "",
            "controls": [_control(c) for c in controls(method.params) if c.kind != "str"],  # those name files
        }

    def _pooled(self, method: Any, params: Any) -> bool:
        """Whether a method drafts from a pool of text; False while there is no model to ask for."""
        target = self.loader.target
        if target is None or method.available(target):
            return False
        return bool(method.needs(target, params).pool)

    # --- what may be asked ---

    def read_pool(self, path: str | Path, name: str = "") -> tuple[str, str]:
        """The text of an uploaded pool file, and the name it is shown under. Raises Rejected with the sentence."""
        shown = " ".join((name or Path(path).name).split())[:80] or "the pool file"
        size = Path(path).stat().st_size
        most = min(MAX_POOL, self.rules.upload_bytes)
        if size > most:
            raise Rejected(
                "pool",
                f"The pool file {shown} has {size / (1 << 20):.1f} MiB and at most {most >> 20} MiB are taken: "
                "give a part of it.",
            )
        try:
            return Path(path).read_bytes().decode("utf-8-sig"), shown
        except UnicodeDecodeError:
            text = f"The pool file {shown} is not text in UTF-8: save it as such and try again."
            raise Rejected("pool", text) from None

    def count(self, form: PromptForm) -> str:
        """How much of the model's context the prompt takes, in words; Rejected where it does not fit."""
        target = self.loader.target
        given = form.given
        if target is None or not given.strip():
            return f"{len(given):,} characters" if given.strip() else ""
        count = len(form.prompt(target.tokenizer).tokens)
        limit = target.context_length
        if count >= limit:
            raise Rejected("prompt", _too_long(count, limit))
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
    ) -> Job:
        """Queue a run. Raises Rejected with the place and the sentence."""
        target = self.loader.target
        if target is None:
            raise Rejected("model", self.catalog()["reason"] or "There is no model.")
        known = self._methods()
        if method not in known:
            raise Rejected("method", f"There is no method {str(method)[:40]!r}: choose one of {', '.join(known)}.")
        chosen = known[method]
        if missing := chosen.available(target):
            raise Rejected("method", missing)
        checked, common = _checked(chosen.params, params), _checked(RunSettings, settings)
        self.check_size(form, common.max_new_tokens)
        pooled = self._pooled(chosen, checked)
        prompt = form.whole(target.tokenizer, pooled=pooled)
        if pooled and prompt.pool is None and prompt.context_pool() is None:
            raise Rejected(
                "prompt",
                f"{chosen.title} drafts from a context, and this prompt has none: fill in Context (form “Segments”), "
                "or add a pool file under More.",
            )
        shortened = chosen.prompt is not None  # by how much, only the run knows
        if len(prompt.tokens) >= target.context_length and not shortened:
            raise Rejected("prompt", _too_long(len(prompt.tokens), target.context_length))

        name = title or form.title

        def build(cancel: threading.Event) -> Any:
            return self.run_of(
                target, prompt, method, name, cancel, params=dataclasses.asdict(checked), settings=common
            )

        try:
            device = str(target.info.get("device", "cpu"))
            return self.runner.submit(build, title=name, owner=owner, session=session, device=device)
        except QueueFull as problem:
            raise Rejected("queue", str(problem), problem.retry_s) from None

    def check_size(self, form: PromptForm | str, new_tokens: int = 0) -> None:
        """Raises Rejected where a prompt, or as many new tokens, are more than this server takes."""
        size = len(form) if isinstance(form, str) else len(form.given)
        if size > self.rules.prompt:
            raise Rejected(
                "prompt",
                f"The prompt has {size:,} characters and at most {self.rules.prompt:,} are taken here: shorten it.",
            )
        if new_tokens > self.rules.new_tokens:
            raise Rejected(
                "method",
                f"{new_tokens:,} new tokens were asked for and at most {self.rules.new_tokens:,} are made here: "
                "ask for fewer.",
            )

    def check_experiment(self, planned: Any, mine: int) -> None:
        """Raises Rejected where an experiment (a lab ``Plan``) is too much for a shared server; ``mine`` go on."""
        if not self.rules.shared:
            return
        self.check_size("", planned.experiment.max_new_tokens)
        if mine >= MAX_EXPERIMENTS:
            raise Rejected("queue", f"{mine} of your experiments wait or go on: wait until one is over.", 30)
        if self.rules.public and planned.variants:
            raise Rejected("method", "Nothing is trained on a public server: run this experiment on one of your own.")
        if self.rules.public and planned.runs > MAX_PUBLIC_RUNS:
            raise Rejected(
                "method",
                f"This is {planned.runs:,} runs, and an experiment on a public server has at most {MAX_PUBLIC_RUNS}: "
                "take fewer prompts or values.",
            )

    def params_of(self, method: str, given: Mapping[str, Any]) -> tuple[Any, Any]:
        """A method and its parameters, checked. Raises Rejected with the place and the sentence."""
        known = self._methods()
        if method not in known:
            raise Rejected("method", f"There is no method {method[:40]!r}: choose one of {', '.join(known)}.")
        if self.loader.target is not None and (missing := known[method].available(self.loader.target)):
            raise Rejected("method", missing)
        return known[method], _checked(known[method].params, given)

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
        from decoders import Run, Sampling

        lossy = not self._methods()[method].lossless
        return Run(
            target,
            prompt,
            method,
            params=params,
            sampling=Sampling(settings.temperature, settings.top_k, settings.top_p, settings.seed),
            max_new_tokens=settings.max_new_tokens,
            title=title,
            cancel=cancel,
            compare=lossy or (settings.compare and method != "plain"),
        )

    def open_file(self, source: str | Path | bytes, *, owner: str = "") -> str:
        """Put a trace file among the owner's runs; returns its id. Raises Rejected with the sentence."""
        from decoders.trace import files as tracefile

        size = (
            len(source) if isinstance(source, bytes) else Path(source).stat().st_size if Path(source).is_file() else 0
        )
        if size > self.rules.upload_bytes:
            raise Rejected(
                "file", f"This file has {size / (1 << 20):.1f} MiB and at most {self.rules.upload} MiB are opened here."
            )
        try:
            trace = tracefile.load(source)
        except tracefile.TraceError as problem:
            raise Rejected("file", sentence(problem)) from None
        trace.run["id"] = new_id()  # never the file's own: it could name somebody else's run
        trace.run["complete"] = True
        return self.store.put(trace, kind="opened", owner=owner)

    def runs(self, owner: str) -> list[dict[str, Any]]:
        """What this user may see in a list, the running ones first; ``mine``: may be changed and deleted."""
        live = [
            {
                "id": j.id,
                "title": j.title or "Untitled run",
                "kind": "live",
                "state": j.state,
                "method": "",
                "created": "",
                "mine": False,
            }
            for j in self.runner.active(owner)
            if owner
        ]
        return live + [{**row, "mine": self.may_change(row["id"], owner)} for row in self.store.listing(owner)]

    # --- the library of runs ---

    def room(self) -> dict[str, Any]:
        """How full the store is, and what is wrong with the disk, if anything is."""
        return {**self.store.taken(), "problem": self.library.problem if self.library is not None else ""}

    def bring(self, key: str) -> bool:
        """Put a run that only the disk has into the store. Whether there is such a run."""
        if self.library is not None and self.library.bring(key, self.store, shared=self.rules.shared):
            return True
        return self.lab.bring(key)

    def may_change(self, key: str, owner: str) -> bool:
        """Whether a run is ``owner``'s; what belongs to everybody may be changed on a server of one's own."""
        entry = self.store.entry(key)
        if entry is None or entry.kind == "gallery":
            return False
        return entry.owner == (owner or None) or (entry.owner == EVERYBODY and not self.rules.shared)

    def change_runs(
        self,
        keys: list[str],
        owner: str,
        *,
        title: str | None = None,
        add: list[str] | None = None,
        drop: list[str] | None = None,
        keep: bool | None = None,
    ) -> list[str]:
        """Another title, tags more or fewer, kept or not; returns the runs that were changed. Raises Rejected."""
        try:
            added, dropped = [checked_tag(tag) for tag in add or ()], set(drop or ())
        except ValueError as problem:
            raise Rejected("library", sentence(problem)) from None
        if title is not None:
            title = " ".join(title.split())
            if not 0 < len(title) <= MAX_TITLE:
                raise Rejected(
                    "library", f"The title has {len(title)} characters: 1 to {MAX_TITLE} are needed, give another one."
                )
        done = []
        for key in keys:
            entry = self.store.entry(key)
            if entry is None or not self.may_change(key, owner):
                continue
            tags = [tag for tag in dict.fromkeys((*entry.tags, *added)) if tag not in dropped]
            if len(tags) > MAX_TAGS:
                raise Rejected(
                    "library", f"A run has at most {MAX_TAGS} tags, and this would make {len(tags)}: remove one first."
                )
            try:
                changed = self.store.change(key, title=title, tags=tags, keep=keep)
            except ValueError as problem:
                raise Rejected("library", sentence(problem)) from None
            except KeyError:  # trimmed in between
                continue
            if self.library is not None:
                if key not in self.library and (changed.keep or changed.tags or title is not None):
                    self.library.finish(self.store.get(key))
                about = {"title": changed.summary["title"], "tags": list(changed.tags), "keep": changed.keep}
                if key in self.library:
                    self.library.describe(key, **about, **({"owner": owner} if owner else {}))
            done.append(key)
        return done

    def delete_runs(self, keys: list[str], owner: str) -> list[str]:
        """Delete runs of ``owner``, their files too; returns those that are gone. Raises Rejected."""
        gone = []
        for key in keys:
            if self.may_change(key, owner):
                try:
                    if self.library is not None:
                        self.library.remove(key)
                except OSError as problem:
                    why = (problem.strerror or str(problem)).lower()
                    raise Rejected("library", f"A run's file cannot be deleted: {why}.") from None
                if self.store.remove(key):
                    gone.append(key)
        return gone


def _registered() -> Mapping[str, Any]:
    from decoders import methods

    return methods()
