"""The page "Attribution": what an answer was copied from, by several methods; scored against known quotes; exports."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cachetools import LRUCache
from fastapi import Response
from pydantic import Field

from decoders.errors import UserError
from decoders.prompt.codec import of_trace
from decoders.study.attribute.attribution import COUNT_UNITS, WAY_WORDS, WAYS, links
from decoders.study.attribute.export import markdown, to_json
from decoders.study.attribute.quotes import QuotedAnswer
from decoders.study.attribute.rarity import token_bits
from specviz.places import is_id
from specviz.server.bodies import Body, Listed, PageSession, needs
from specviz.server.desk import Desk, get, post
from specviz.server.forms import PromptForm, Refusal
from specviz.server.http import Owner, attachment
from specviz.server.store import UnknownTrace
from specviz.shell.assets import plotly
from specviz.views.examples import passages
from specviz.views.gallery import documents
from specviz.views.prompts import check_tokens

from .causes import Causes
from .document import answer_digest, document, known_quotes, link_table, standalone
from .scoring import MAX_ROWS, MIN_RUNS, Scorings, chosen_signals, unfit

if TYPE_CHECKING:
    from decoders import Prompt
    from decoders.trace.trace import Trace

FORMATS = {
    "html": "text/html; charset=utf-8", "json": "application/json", "csv": "text/csv; charset=utf-8",
    "markdown": "text/markdown; charset=utf-8",
}  # fmt: skip
SUFFIXES = {"html": "html", "json": "json", "csv": "csv", "markdown": "md"}
MAX_BITS = 10_000
PAPER = (  # PLD+ table 10: method, precision, recall, F1
    ("GPT-4", 0.96, 0.87, 0.90),
    ("Yi-6b (Phukan et al. 2024)", 0.94, 0.99, 0.96),
    ("PLD+ (h), min_run 2", 0.96, 0.96, 0.96),
    ("PLD+ (h), min_run 5", 0.98, 0.85, 0.90),
    ("PLD+ (h), min_run 8", 0.99, 0.70, 0.79),
)
MAX_ANSWER = 100_000  # characters


class Sources(Body):
    """The passages that an answer may quote, with what is asked about them."""

    instruction: str | None = None
    context: str | None = None
    question: str | None = None


class ScoreRequest(Body):
    """A run or answer to attribute, and the signals (names of methods). One of

    ``trace``: that run's output, by other methods;
    ``form`` with ``answer``: that text; without it the first signal's method writes the answer;
    ``scoring`` with ``row``: an answer of a scoring, with its known quotes.

    The runs end with the open page ``session``.
    """

    signals: list[str] = Field(default=[])
    trace: str | None = None
    form: Annotated[Sources, needs("the instruction, the passages and the question are given as text")] | None = None
    answer: Annotated[str, needs("the answer is given as text")] | None = None
    max_new_tokens: int = 256
    scoring: str | None = None
    row: int | None = None
    session: PageSession = None


class Attribution(Scorings, Causes):
    """Attributed runs, answers to attribute, and scorings of known quotes."""

    name, title, order = "attribution", "Attribution", 30
    cannot = "Attribution cannot"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._gold: LRUCache[str, QuotedAnswer] = LRUCache(500)  # run → its known quotes
        self._digests: LRUCache[str, str] = LRUCache(1000)  # run → what tells that two runs wrote the same
        self._change = threading.Lock()

    # --- what there is ---

    @get()
    def catalog(self) -> dict[str, Any]:
        """The signals with what is missing for them, and why nothing can be run, if so. "documents": runs to begin
        with, in place of the run "first".
        """
        catalog = self.desk.catalog()
        return {
            "reason": catalog["reason"], "plotly": plotly(),
            "signals": [
                {"tells": method["signal"], **{key: method[key] for key in ("name", "title", "missing", "usual")}}
                for method in catalog["methods"]
                if method["signal"]
            ],
            "min_runs": MIN_RUNS, "counted": COUNT_UNITS, "max_rows": MAX_ROWS,
            "documents": [run for run in documents() if self.desk.store.entry(run["id"]) is not None],
            "first": self.desk.first,
            "paper": {"where": "PLD+ table 10, Vicuna-7B, the QuoteSum test set", "rows": PAPER},
        }  # fmt: skip

    @get("runs/{key}")
    def show(self, key: str, owner: Owner = "") -> dict[str, Any]:
        """A run's attribution: "views" (whole, drafted) as ``to_json`` gives them at min_run 1, "gold" where its quotes
        are known, and "others": runs of the list that wrote the same to the same prompt. A run that is not over has
        only its state. Raises UnknownTrace.
        """
        job = self.desk.runner.job(key) if is_id(key) else None
        if job is not None:
            return {"id": key, "title": job.title, "state": job.state, "ahead": max(0, job.ahead)}
        trace = self.desk.trace(key)
        other_runs = self._other_runs(key, self._digest(key, trace), len(trace.output_ids), owner)
        gold = self._known_of([key, *(other_run["id"] for other_run in other_runs)])
        error = str(trace.run.get("error") or "")
        return {
            "id": key,
            "state": "done",
            "error": error,
            **document(trace, gold, self.causes(key)),
            "others": other_runs,
        }

    def _quotes_of(self, key: str) -> QuotedAnswer | None:
        """A run's known quotes. They are kept beside the run's file, once it is there: the next server has them too."""
        with self._change:
            gold = self._gold.get(key)
        library = self.desk.library
        if library is not None and key in library:
            if gold is None:
                gold = known_quotes(library.about(key).get("gold"))
            elif "gold" not in library.about(key):
                library.describe(key, gold=dataclasses.asdict(gold))
        return gold

    def _known_of(self, keys: Sequence[str]) -> QuotedAnswer | None:
        """The known quotes of an answer that all these runs wrote."""
        return next((gold for key in keys if (gold := self._quotes_of(key)) is not None), None)

    def _digest(self, key: str, trace: Trace) -> str:
        digest = answer_digest(trace)
        with self._change:
            self._digests[key] = digest
        return digest

    def _other_runs(self, key: str, digest: str, tokens: int, owner: str) -> list[dict[str, str]]:
        """Runs of other methods on the list that wrote the same and copied something, one per method."""
        runs_by_method: dict[str, str] = {}
        for run in self.desk.store.listing(owner):
            if run["id"] == key or run["tokens"] != tokens or run["method_name"] in runs_by_method:
                continue
            with self._change:
                run_digest = self._digests.get(run["id"])
            if run_digest is None:
                try:
                    trace = self.desk.store.get(run["id"])
                    has_copies = max(trace.tables["nodes"]["source"], default=-1) >= 0
                    run_digest = self._digest(run["id"], trace) if has_copies else ""
                except UnknownTrace:
                    continue
            if run_digest == digest:
                runs_by_method[run["method_name"]] = run["id"]
        return [{"method": method, "id": run} for method, run in runs_by_method.items()]

    @get("runs/{key}/download")
    def download(
        self, key: str, format: str = "html", min_run: int = 2, counted: str = "words", others: Listed = (),
        min_bits: float = 0,
    ) -> Response:  # fmt: skip
        """A run's links of at least ``min_run`` tokens and ``min_bits`` of rarity as a file. ``others``: runs shown
        beside it (HTML). Raises UnknownTrace and UserError.
        """
        if counted not in WAYS:
            raise UserError(f"counted={counted[:40]!r} is unknown: use one of {', '.join(WAYS)}")
        if format not in FORMATS:
            raise UserError(f"the format {format[:40]!r} is unknown: use one of {', '.join(FORMATS)}")
        if not 1 <= min_run <= 10_000:
            raise UserError(f"min_run={min_run} is out of range: a whole number from 1 to 10,000")
        if not 0 <= min_bits <= MAX_BITS:
            raise UserError(f"min_bits={min_bits} is out of range: a number from 0 to {MAX_BITS:,}")
        trace = self.desk.trace(key)
        bits = token_bits(trace, trace.output_ids)
        every_link = links(trace, min_run, **WAYS[counted])
        run_links = [link for link in every_link if sum(bits[link.start : link.stop]) >= min_bits]
        if format == "json":
            settings = {"min_run": min_run, "min_bits": min_bits, "counted": WAY_WORDS[counted]}
            export = {**to_json(trace, run_links), **settings, "causes": self.causes(key)}
            text = json.dumps(export, ensure_ascii=False, indent=1)
        elif format == "csv":
            text = link_table(to_json(trace, run_links))
        elif format == "markdown":
            text = markdown(trace, run_links)
        else:
            runs = {key: trace, **{run_id: self.desk.trace(run_id) for run_id in others[:8]}}
            same_runs = [run_id for run_id, run in runs.items() if run.output_ids == trace.output_ids]
            gold = self._known_of(same_runs)
            parts = [document(runs[run_id], gold, self.causes(run_id)) for run_id in same_runs]
            text = standalone(parts, min_run, counted, min_bits)
        return attachment(text, FORMATS[format], f"attribution-{key}.{SUFFIXES[format]}")

    # --- runs ---

    @post("start")
    def start(self, request: ScoreRequest, owner: Owner = "") -> dict[str, Any]:
        """Queue a run per signal: {"runs": [{"method", "id"}], "notes": [what was left out and why]}. Raises UserError
        and Refusal with a sentence.
        """
        target = self.desk.target()
        names = chosen_signals(self.desk, request.signals)
        session = request.session or ""
        gold = None
        if request.trace is not None:
            target, prompt, answer, title = self._open_trace(request.trace)
            gold = self._quotes_of(request.trace)
        elif request.scoring is not None:
            gold = self.row(request.scoring, request.row)
            prompt, title = gold.record().prompt(target.tokenizer), gold.question
            answer = self._tokens(target, gold.answer)
        else:
            form = self._form(request.form)
            self.desk.check_size(form)
            title = dataclasses.replace(form, instruction="").title or form.title
            if request.answer is None:
                settings = {"max_new_tokens": request.max_new_tokens}
                job = self.desk.submit(form, names[0], {}, settings, title=title, owner=owner, session=session)
                return {"runs": [{"method": names[0], "id": job.id}], "notes": []}
            prompt = form.prompt(target.tokenizer)
            answer = self._tokens(target, request.answer)
        from decoders.study.look.teacher_forcing import check_answer

        check_answer(target, answer, len(prompt.tokens))
        started_jobs, notes = [], []
        for name in names:
            if reason := unfit(self.desk, name, prompt):
                notes.append(reason)
                continue

            def build(cancel: threading.Event, name: str = name) -> Any:
                from decoders.study.look.teacher_forcing import forced_run

                return forced_run(target, prompt, answer, name, title=title, cancel=cancel)

            try:
                job = self.desk.queue(build, title=title, owner=owner, session=session)
            except Refusal as problem:
                if not started_jobs:
                    raise
                notes.append(f"{name} was left out: {problem}")
                break
            started_jobs.append({"method": name, "id": job.id})
            if gold is not None:
                with self._change:
                    self._gold[job.id] = gold
        if not started_jobs:
            raise UserError(f"no signal can attribute this: {'; '.join(notes)}")
        return {"runs": started_jobs, "notes": notes}

    def _form(self, sources: Sources | None) -> PromptForm:
        if sources is None:
            raise UserError("nothing is given to attribute: an answer and its passages, or a run")
        if not passages(sources.context or ""):
            raise UserError("there are no sources: give at least one passage that the answer may quote")
        return PromptForm("segments", sources.instruction or "", sources.context or "", sources.question or "")

    def _tokens(self, target: Any, text: str) -> list[int]:
        from decoders.study.look.teacher_forcing import answer_ids

        if len(text) > MAX_ANSWER:
            raise UserError(f"the answer has {len(text):,} characters and at most {MAX_ANSWER:,} are taken: shorten it")
        self.desk.check_size(text)
        return answer_ids(target, text.rstrip("\n"))

    def _open_trace(self, key: str) -> tuple[Any, Prompt, list[int], str]:
        """A recorded run's model (the loaded one where that is not here), prompt, output, title, token by token."""
        if self.desk.runner.job(key) is not None:
            raise UserError("this run is not over yet: wait until it is")
        trace = self.desk.trace(key)
        if not trace.output_ids:
            raise UserError("this run wrote nothing, so there is nothing to attribute")
        target = self.desk.target_of(trace.run)
        check_tokens(target, trace)
        prompt = of_trace(trace)
        return target, prompt, trace.output_ids, str(trace.run.get("title") or "")
