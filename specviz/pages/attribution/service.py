"""The page "Attribution": what an answer was copied from, by several methods; scored against known quotes; exports."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.study.attribution import COUNTED, links
from decoders.study.attribution_export import markdown, to_json
from decoders.study.quotes import (
    Quote,
    QuotedAnswer,
    QuoteScore,
    demo_quotes,
    mean_score,
    parse_rows,
    scores,
)
from specviz.server.runner import Job, QueueFull, sentence
from specviz.server.store import UnknownTrace, is_id, new_id
from specviz.views.examples import passages

from .document import document, standalone

if TYPE_CHECKING:
    from decoders import Prompt, Target
    from decoders.trace.trace import Trace
    from specviz.server.desk import Desk

log = logging.getLogger(__name__)

SIGNALS = {  # method → what tells its sources
    "pld+h": "the place whose hidden state is most alike",
    "pld+a": "the place that copying heads attend to",
    "adapld": "the place whose hidden state is most alike, or what followed a branch",
    "casd": "the longest match in the pool of passages",
    "glide": "where the draft model's cross-attention looked",
}
FORMATS = {"html": "text/html; charset=utf-8", "json": "application/json", "markdown": "text/markdown; charset=utf-8"}
SUFFIXES = {"html": "html", "json": "json", "markdown": "md"}
MIN_RUNS = tuple(range(1, 13))
PAPER = (  # PLD+ table 10: method, precision, recall, F1
    ("GPT-4", 0.96, 0.87, 0.90),
    ("Yi-6b (Phukan et al. 2024)", 0.94, 0.99, 0.96),
    ("PLD+ (h), min_run 2", 0.96, 0.96, 0.96),
    ("PLD+ (h), min_run 5", 0.98, 0.85, 0.90),
    ("PLD+ (h), min_run 8", 0.99, 0.70, 0.79),
)
MAX_ANSWER = 100_000  # characters
MAX_QUOTED = 4 << 20  # characters of a QuoteSum file
MAX_ROWS, MAX_SCORINGS, MAX_KEPT = 500, 2, 8


@dataclass(eq=False)
class Scoring:
    """Known quotes being found: what was asked, and the scores of every answer so far.

    ``found`` has one entry per answer and method, in the order of ``gold``: {"whole", "drafted"} → scores by
    ``MIN_RUNS``, None where the answer could not be scored.
    """

    id: str
    owner: str
    name: str
    gold: list[QuotedAnswer]
    signals: tuple[str, ...]
    notes: list[str]
    found: dict[str, list[dict[str, list[QuoteScore]] | None]] = field(default_factory=dict)
    done: int = 0
    state: str = "queued"
    error: str = ""
    cancel: threading.Event = field(default_factory=threading.Event)


class Attributions:
    """Attributed runs, answers that are given, and scorings, for the pages of a desk."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._gold: OrderedDict[str, QuotedAnswer] = OrderedDict()  # run → its known quotes
        self._digests: OrderedDict[str, str] = OrderedDict()  # run → what tells that two runs wrote the same
        self._scorings: OrderedDict[str, Scoring] = OrderedDict()
        self._change = threading.Lock()
        self._turn = threading.Lock()  # one scoring after another

    def close(self) -> None:
        """Stop all scorings."""
        with self._change:
            for scoring in self._scorings.values():
                scoring.cancel.set()

    # --- what there is ---

    def catalog(self) -> dict[str, Any]:
        """The signals with what is missing for them, and why nothing can be run, if so."""
        known = {method["name"]: method for method in self.desk.catalog()["methods"]}
        reason = self.desk.catalog()["reason"]
        return {
            "reason": reason,
            "signals": [
                {
                    "name": name, "title": known[name]["title"] if name in known else name, "tells": tells,
                    "missing": known[name]["missing"] if name in known else "" if reason else "It is not registered.",
                }
                for name, tells in SIGNALS.items()
                if name in known or reason
            ],
            "min_runs": MIN_RUNS, "counted": COUNTED, "max_rows": MAX_ROWS,
            "paper": {"where": "PLD+ table 10, Vicuna-7B, the QuoteSum test set", "rows": PAPER},
        }  # fmt: skip

    def shown(self, key: str, owner: str = "") -> dict[str, Any]:
        """A run's attribution: "views" (whole, drafted) as ``to_json`` gives them at min_run 1, "gold" where its quotes
        are known, and "others": runs of the list that wrote the same to the same prompt. A run that is not over has
        only its state. Raises UnknownTrace.
        """
        job = self.desk.runner.job(key) if is_id(key) else None
        if job is not None:
            return {"id": key, "title": job.title, "state": job.state, "ahead": max(0, job.ahead)}
        trace = self._trace(key)
        others = self._others(key, self._digest(key, trace), len(trace.output_ids), owner)
        gold = self._known_of([key, *(other["id"] for other in others)])
        error = str(trace.run.get("error") or "")
        return {"id": key, "state": "done", "error": error, **document(trace, gold), "others": others}

    def _trace(self, key: str) -> Trace:
        if not is_id(key):
            raise UnknownTrace(str(key)[:40])
        if key not in self.desk.store:
            self.desk.bring(key)
        return self.desk.store.get(key)

    def _known(self, key: str) -> QuotedAnswer | None:
        """A run's known quotes. They are kept beside the run's file, once it is there: the next server has them too."""
        with self._change:
            gold = self._gold.get(key)
        library = self.desk.library
        if library is not None and key in library:
            if gold is None:
                gold = _quoted(library.about(key).get("gold"))
            elif "gold" not in library.about(key):
                library.describe(key, gold=dataclasses.asdict(gold))
        return gold

    def _known_of(self, keys: Sequence[str]) -> QuotedAnswer | None:
        """The known quotes of an answer that all these runs wrote."""
        return next((gold for key in keys if (gold := self._known(key)) is not None), None)

    def _digest(self, key: str, trace: Trace) -> str:
        tokens = trace.tables["tokens"]
        same = (trace.run["prompt_length"], tokens["id"], tokens["passage"])
        found = hashlib.sha256(json.dumps(same).encode()).hexdigest()
        with self._change:
            _keep(self._digests, key, found, 1000)
        return found

    def _others(self, key: str, digest: str, tokens: int, owner: str) -> list[dict[str, str]]:
        """Runs of other methods on the list that wrote the same, one per method."""
        found: dict[str, str] = {}
        for run in self.desk.store.listing(owner):
            if run["id"] == key or run["tokens"] != tokens or run["method_name"] in found:
                continue
            with self._change:
                known = self._digests.get(run["id"])
            if known is None:
                try:
                    known = self._digest(run["id"], self.desk.store.get(run["id"]))
                except UnknownTrace:
                    continue
            if known == digest:
                found[run["method_name"]] = run["id"]
        return [{"method": method, "id": run} for method, run in found.items()]

    def download(
        self, key: str, format: str, min_run: int, whole: bool, others: Sequence[str] = ()
    ) -> tuple[bytes, str, str]:
        """An export of a run's links: its bytes, media type and file name. ``others``: runs shown beside it (HTML).
        Raises UnknownTrace and UserError.
        """
        if format not in FORMATS:
            raise UserError(f"the format {format[:40]!r} is unknown: use one of {', '.join(FORMATS)}")
        if not 1 <= min_run <= 10_000:
            raise UserError(f"min_run={min_run} is out of range: a whole number from 1 to 10,000")
        trace = self._trace(key)
        found = links(trace, min_run, whole=whole)
        if format == "json":
            told = {**to_json(trace, found), "min_run": min_run, "counted": COUNTED[whole]}
            text = json.dumps(told, ensure_ascii=False, indent=1)
        elif format == "markdown":
            text = markdown(trace, found)
        else:
            runs = {key: trace, **{other: self._trace(other) for other in others}}
            same = [one for one, found in runs.items() if found.output_ids == trace.output_ids]
            gold = self._known_of(same)
            parts = [document(runs[one], gold) for one in same]
            text = standalone(parts, min_run, whole)
        return text.encode(), FORMATS[format], f"attribution-{key}.{SUFFIXES[format]}"

    # --- runs ---

    def start(self, asked: Mapping[str, Any], owner: str = "", session: str = "") -> dict[str, Any]:
        """Queue a run per signal: {"runs": [{"method", "id"}], "notes": [what was left out and why]}. They end with
        the open page ``session``.

        ``asked``: "signals" (names of methods) and one of
        "trace": attribute that run's output by other methods; its text is given to them;
        "form" {instruction, context, question} with "answer": attribute that text;
        "form" with "max_new_tokens" and no "answer": the first signal's method writes the answer;
        "scoring" with "row": an answer of a scoring, with its known quotes.
        Raises UserError and Rejected with a sentence.
        """
        from specviz.server.forms import Rejected

        target = self._target()
        names = self._signals(asked.get("signals"))
        gold = None
        if isinstance(asked.get("trace"), str):
            prompt, answer, title = self._again(target, asked["trace"])
            gold = self._known(asked["trace"])
        elif asked.get("scoring") is not None:
            gold = self._row(asked, owner)
            prompt, title = gold.record().prompt(target.tokenizer), gold.question
            answer = self._tokens(target, gold.answer)
        else:
            form = self._form(asked)
            self.desk.check_size(form)
            title = dataclasses.replace(form, instruction="").title or form.title
            if "answer" not in asked:
                settings = {"max_new_tokens": asked.get("max_new_tokens", 256)}
                job = self.desk.submit(form, names[0], {}, settings, title=title, owner=owner, session=session)
                return {"runs": [{"method": names[0], "id": job.id}], "notes": []}
            prompt = form.prompt(target.tokenizer)
            answer = self._tokens(target, asked["answer"])
        from decoders.study.forced import check_answer

        check_answer(target, answer, len(prompt.tokens))
        made, notes = [], []
        for name in names:
            if reason := self._unfit(target, name, prompt):
                notes.append(reason)
                continue
            try:
                job = self._submit(target, prompt, answer, name, title, owner, session)
            except QueueFull as problem:
                if not made:
                    raise Rejected("queue", str(problem), problem.retry_s) from None
                notes.append(f"{name} was left out: {problem}")
                break
            made.append({"method": name, "id": job.id})
            if gold is not None:
                with self._change:
                    _keep(self._gold, job.id, gold, 500)
        if not made:
            raise UserError(f"no signal can attribute this: {'; '.join(notes)}")
        return {"runs": made, "notes": notes}

    def _target(self) -> Target:
        target = self.desk.loader.target
        if target is None:
            raise UserError(self.desk.catalog()["reason"] or "There is no model.")
        return target

    def _signals(self, given: Any) -> tuple[str, ...]:
        known = self.desk.methods()
        allowed = [name for name in SIGNALS if name in known]
        if not isinstance(given, list) or not given:
            raise UserError(f"no signal is chosen: choose at least one of {', '.join(allowed)}")
        for name in given:
            if name not in allowed:
                raise UserError(f"there is no signal {str(name)[:40]!r}: choose of {', '.join(allowed)}")
        return tuple(dict.fromkeys(given))

    def _form(self, asked: Mapping[str, Any]) -> Any:
        from specviz.server.forms import PromptForm

        given = asked.get("form")
        if not isinstance(given, Mapping):
            raise UserError("nothing is given to attribute: an answer and its passages, or a run")
        parts = {name: given.get(name) or "" for name in ("instruction", "context", "question")}
        if not all(isinstance(text, str) for text in parts.values()):
            raise UserError("the instruction, the passages and the question are given as text")
        if not passages(parts["context"]):
            raise UserError("there are no sources: give at least one passage that the answer may quote")
        return PromptForm(**parts)

    def _tokens(self, target: Any, text: Any) -> list[int]:
        from decoders.study.forced import answer_ids

        if not isinstance(text, str):
            raise UserError("the answer is given as text")
        if len(text) > MAX_ANSWER:
            raise UserError(f"the answer has {len(text):,} characters and at most {MAX_ANSWER:,} are taken: shorten it")
        self.desk.check_size(text)
        return answer_ids(target, text.rstrip("\n"))

    def _again(self, target: Any, key: str) -> tuple[Prompt, list[int], str]:
        """Prompt, output and title of a recorded run, token by token."""
        from specviz.experiments.prompts import check_tokens, of_trace

        if self.desk.runner.job(key) is not None:
            raise UserError("this run is not over yet: wait until it is")
        trace = self._trace(key)
        if not trace.output_ids:
            raise UserError("this run wrote nothing, so there is nothing to attribute")
        check_tokens(target, trace)
        return of_trace(trace.run, trace.tables["tokens"]).prompt, trace.output_ids, str(trace.run.get("title") or "")

    def _unfit(self, target: Any, name: str, prompt: Prompt) -> str:
        """Why a method cannot draft for this prompt on this target; "" if it can."""
        method = self.desk.methods()[name]
        if missing := method.available(target):
            return f"{method.title} was left out: {missing}"
        if method.needs(target, method.params()).pool and prompt.context_pool() is None:
            return f"{method.title} was left out: it drafts from passages, and this prompt has none"
        return ""

    def _submit(
        self, target: Any, prompt: Prompt, answer: Sequence[int], name: str, title: str, owner: str, session: str
    ) -> Job:
        def build(cancel: threading.Event) -> Any:
            from decoders.study.forced import forced_run

            return forced_run(target, prompt, answer, name, title=title, cancel=cancel)

        device = str(target.info.get("device", "cpu"))
        return self.desk.runner.submit(build, title=title, owner=owner, session=session, device=device)

    # --- known quotes ---

    def score(self, asked: Mapping[str, Any], owner: str = "") -> dict[str, Any]:
        """Begin to score: {"id", "answers", "notes"}. ``asked``: "signals", and "text" (QuoteSum rows, one JSON object
        a line) with "name", or "demo" (how many answers of the demo's quote task). Raises UserError.
        """
        target = self._target()
        names = self._signals(asked.get("signals"))
        most = asked.get("limit", MAX_ROWS)
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MAX_ROWS:
            raise UserError(f"the number of answers is {str(most)[:20]!r}: a whole number from 1 to {MAX_ROWS}, please")
        if self.desk.rules.runs:  # per minute and user
            most = min(most, self.desk.rules.runs)
        notes: list[str] = []
        if isinstance(asked.get("text"), str):
            text = asked["text"].removeprefix("\ufeff")
            if len(text) > MAX_QUOTED:
                raise UserError(f"the rows have {len(text):,} characters and at most {MAX_QUOTED:,} are taken")
            name = " ".join(str(asked.get("name") or "pasted rows").split())[:80]
            gold, notes = parse_rows(text, "row", most, name)
        else:
            name, gold = "the demo generator's quotes", demo_quotes(most)
        kept = [one for one in gold if self._fits(target, one)]
        if not kept:
            raise UserError(f"no prompt leaves room for its answer in the model's context of {target.context_length}")
        if len(kept) < len(gold):
            notes.append(f"{len(gold) - len(kept)} of {len(gold)} answers do not fit the model's context")
        missing = {n: self._unfit(target, n, kept[0].record().prompt(target.tokenizer)) for n in names}
        usable = tuple(n for n in names if not missing[n])
        notes += [reason for reason in missing.values() if reason]
        if not usable:
            raise UserError(f"no signal can attribute these: {'; '.join(notes)}")
        scoring = Scoring(new_id(), owner, name, kept, usable, notes, {n: [] for n in usable})
        with self._change:
            going = [one for one in self._scorings.values() if one.state in ("queued", "running")]
            if self.desk.rules.shared and any(one.owner == owner for one in going):
                raise UserError("one of your scorings goes on already: try again when it is over")
            if len(going) >= MAX_SCORINGS:
                raise UserError(f"{MAX_SCORINGS} scorings are going on already: try again when one is over")
            over = [key for key, one in self._scorings.items() if one.state not in ("queued", "running")]
            for key in over[: max(0, len(self._scorings) + 1 - MAX_KEPT)]:
                del self._scorings[key]
            self._scorings[scoring.id] = scoring
        threading.Thread(target=self._work, args=(scoring, target), name="score quotes", daemon=True).start()
        return {"id": scoring.id, "answers": len(kept), "notes": notes}

    def _fits(self, target: Any, gold: QuotedAnswer) -> bool:
        from decoders.study.forced import answer_ids

        prompt = gold.record().prompt(target.tokenizer)
        return len(prompt.tokens) + len(answer_ids(target, gold.answer)) <= target.context_length

    def _work(self, scoring: Scoring, target: Any) -> None:
        device = str(target.info.get("device", "cpu"))
        try:
            with self._turn:
                scoring.state = "running"
                for gold in scoring.gold:
                    for name in scoring.signals:
                        if scoring.cancel.is_set():
                            scoring.state = "stopped"
                            return
                        found = self.desk.runner.between(lambda g=gold, n=name: _scored(target, g, n), device=device)
                        scoring.found[name].append(found)
                    scoring.done += 1
                scoring.state = "done"
        except QueueFull:
            scoring.state = "stopped"
        except Exception as problem:
            if not isinstance(problem, ValueError):
                log.exception("scoring %s failed", scoring.id)
            scoring.state, scoring.error = "failed", sentence(problem)

    def scoring(self, key: str, answers: bool = False) -> dict[str, Any]:
        """How far a scoring is: "rows" of the sweep over min_run, and with ``answers`` each answer's own scores.
        Raises UserError where there is none (any more).
        """
        scoring = self._scoring(key)
        done, rows = scoring.done, []
        for name in scoring.signals:
            of = scoring.found[name][:done]
            for counted in ("whole", "drafted"):
                kept = [one[counted] for one in of if one is not None]
                if kept:
                    swept = [mean_score([one[i] for one in kept]) for i in range(len(MIN_RUNS))]
                    rows.append({
                        "method": name, "title": self.desk.methods()[name].title, "counted": counted,
                        "examples": len(kept), "scores": [dataclasses.asdict(score) for score in swept],
                    })  # fmt: skip
        told: dict[str, Any] = {
            "id": key, "name": scoring.name, "state": scoring.state, "error": scoring.error, "done": done,
            "total": len(scoring.gold), "notes": scoring.notes, "rows": rows,
        }  # fmt: skip
        if answers:
            told["answers"] = [
                {
                    "id": gold.id, "question": gold.question, "quotes": len(gold.quotes),
                    "f1": {
                        name: {counted: [round(s.f1, 3) for s in one[counted]] for counted in ("whole", "drafted")}
                        for name in scoring.signals
                        if (one := scoring.found[name][number]) is not None
                    },
                }
                for number, gold in enumerate(scoring.gold[:done])
            ]  # fmt: skip
        return told

    def stop(self, key: str, owner: str) -> bool:
        """Stop a scoring of ``owner``; what is done is kept. Whether there was one."""
        with self._change:
            scoring = self._scorings.get(key)
            if scoring is None or scoring.owner != owner:
                return False
            scoring.cancel.set()
        return True

    def _scoring(self, key: Any) -> Scoring:
        with self._change:
            scoring = self._scorings.get(key) if isinstance(key, str) else None
        if scoring is None:
            raise UserError("these scores are not kept any more: score again")
        return scoring

    def _row(self, asked: Mapping[str, Any], owner: str) -> QuotedAnswer:
        scoring, row = self._scoring(asked["scoring"]), asked.get("row")
        if not isinstance(row, int) or isinstance(row, bool) or not 0 <= row < len(scoring.gold):
            raise UserError(f"there is no answer number {str(row)[:20]}: the scoring has {len(scoring.gold)}")
        return scoring.gold[row]


def _scored(target: Any, gold: QuotedAnswer, name: str) -> dict[str, list[QuoteScore]] | None:
    """An answer's scores by ``MIN_RUNS`` under both ways to count; None where it does not hold its quotes."""
    from decoders.study.forced import answer_ids, forced

    trace = forced(target, gold.record().prompt(target.tokenizer), answer_ids(target, gold.answer), name)
    found = {counted: scores(trace, gold, MIN_RUNS, whole=counted == "whole") for counted in ("whole", "drafted")}
    return {name: one for name, one in found.items() if one is not None} if all(found.values()) else None


def _quoted(given: Any) -> QuotedAnswer | None:
    """Known quotes as they stand in a file beside a run; None where there are none."""
    try:
        quotes = tuple(Quote(**quote) for quote in given["quotes"])
        return QuotedAnswer(**{**given, "passages": tuple(given["passages"]), "quotes": quotes})
    except (TypeError, KeyError):
        return None


def _keep(places: OrderedDict[str, Any], key: str, value: Any, most: int) -> None:
    """Remember a value; the oldest go first."""
    places[key] = value
    places.move_to_end(key)
    while len(places) > most:
        places.popitem(last=False)
