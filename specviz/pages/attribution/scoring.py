"""Known quotes: how well each signal finds them, in the background, one scoring after another (PLD+ table 10)."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from decoders.errors import UserError
from decoders.study.attribute.quotes import QuotedAnswer, QuoteScore, mean_score, parse_rows, scores
from specviz.places import new_id
from specviz.server.bodies import Body, needs
from specviz.server.desk import Desk
from specviz.server.forms import Missing
from specviz.server.runner import QueueFull
from specviz.words import sentence

from .signals import chosen_signals, unfit

log = logging.getLogger(__name__)

MIN_RUNS = tuple(range(1, 13))
MAX_QUOTED = 4 << 20  # characters of a QuoteSum file
MAX_ROWS, MAX_SCORINGS, MAX_KEPT = 500, 2, 8


class Rows(Body):
    """QuoteSum rows to score, one JSON object a line; without text, as many answers of the demo's quote task."""

    signals: list[str] = Field(default=[])
    text: str | None = None
    name: str | None = None
    limit: Annotated[
        int, Field(ge=1, le=MAX_ROWS),
        needs(f"the number of answers is {{given}}: a whole number from 1 to {MAX_ROWS}, please"),
    ] = MAX_ROWS  # fmt: skip


@dataclass(eq=False)
class Scoring:
    """Known quotes under test: what was asked, and the scores of every answer so far.

    ``scores`` has one entry per answer and method, in the order of ``gold``: {"whole", "drafted"} → scores by
    ``MIN_RUNS``, None where the answer could not be scored.
    """

    id: str
    owner: str
    name: str
    gold: list[QuotedAnswer]
    signals: tuple[str, ...]
    notes: list[str]
    scores: dict[str, list[dict[str, list[QuoteScore]] | None]] = field(default_factory=dict)
    done: int = 0
    state: str = "queued"
    error: str = ""
    cancel: threading.Event = field(default_factory=threading.Event)


class Scorings:
    """The scorings of a server; the last ones are kept when they are over."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._scorings: OrderedDict[str, Scoring] = OrderedDict()
        self._change = threading.Lock()
        self._turn = threading.Lock()  # one scoring after another

    def close(self) -> None:
        """Stop all scorings."""
        with self._change:
            for scoring in self._scorings.values():
                scoring.cancel.set()

    def score(self, asked: Rows, owner: str = "") -> dict[str, Any]:
        """Begin to score: {"id", "answers", "notes"}. Raises UserError."""
        target = self.desk.target()
        names = chosen_signals(self.desk, asked.signals)
        most = min(asked.limit, self.desk.rules.runs or asked.limit)  # runs are per minute and user
        notes: list[str] = []
        if asked.text is not None:
            text = asked.text.removeprefix("\ufeff")
            if len(text) > MAX_QUOTED:
                raise UserError(f"the rows have {len(text):,} characters and at most {MAX_QUOTED:,} are taken")
            name = " ".join((asked.name or "pasted rows").split())[:80]
            gold, notes = parse_rows(text, "row", most, name)
        else:
            from decoders.training.demo.quotes import demo_quotes

            name, gold = "the demo generator's quotes", demo_quotes(most)
        kept = [one for one in gold if _fits(target, one)]
        if not kept:
            raise UserError(f"no prompt leaves room for its answer in the model's context of {target.context_length}")
        if len(kept) < len(gold):
            notes.append(f"{len(gold) - len(kept)} of {len(gold)} answers do not fit the model's context")
        first = kept[0].record().prompt(target.tokenizer)
        missing = {n: unfit(self.desk, n, first) for n in names}
        usable = tuple(n for n in names if not missing[n])
        notes += [reason for reason in missing.values() if reason]
        if not usable:
            raise UserError(f"no signal can attribute these: {'; '.join(notes)}")
        scoring = Scoring(new_id(), owner, name, kept, usable, notes, {n: [] for n in usable})
        with self._change:
            going = [one for one in self._scorings.values() if one.state in ("queued", "running")]
            if self.desk.rules.is_shared and any(one.owner == owner for one in going):
                raise UserError("one of your scorings goes on already: try again when it is over")
            if len(going) >= MAX_SCORINGS:
                raise UserError(f"{MAX_SCORINGS} scorings are going on already: try again when one is over")
            over = [key for key, one in self._scorings.items() if one.state not in ("queued", "running")]
            for key in over[: max(0, len(self._scorings) + 1 - MAX_KEPT)]:
                del self._scorings[key]
            self._scorings[scoring.id] = scoring
        threading.Thread(target=self._work, args=(scoring, target), name="score quotes", daemon=True).start()
        return {"id": scoring.id, "answers": len(kept), "notes": notes}

    def _work(self, scoring: Scoring, target: Any) -> None:
        try:
            with self._turn:
                scoring.state = "running"
                for gold in scoring.gold:
                    for name in scoring.signals:
                        if scoring.cancel.is_set():
                            scoring.state = "stopped"
                            return
                        one = self.desk.on_worker(lambda g=gold, n=name: _score(target, g, n))
                        scoring.scores[name].append(one)
                    scoring.done += 1
                scoring.state = "done"
        except QueueFull:
            scoring.state = "stopped"
        except Exception as problem:
            if not isinstance(problem, ValueError):
                log.exception("scoring %s failed", scoring.id)
            scoring.state, scoring.error = "failed", sentence(problem)

    def state(self, key: str, answers: bool = False) -> dict[str, Any]:
        """The progress of a scoring: "rows" of the sweep over min_run, and with ``answers`` each answer's own scores.
        Raises Missing where there is none (any more).
        """
        scoring = self.scoring(key)
        done, rows = scoring.done, []
        for name in scoring.signals:
            of = scoring.scores[name][:done]
            for counted in ("whole", "drafted"):
                kept = [one[counted] for one in of if one is not None]
                if kept:
                    swept = [mean_score([one[i] for one in kept]) for i in range(len(MIN_RUNS))]
                    rows.append({
                        "method": name, "title": self.desk.methods()[name].title, "counted": counted,
                        "examples": len(kept), "scores": [dataclasses.asdict(score) for score in swept],
                    })  # fmt: skip
        state: dict[str, Any] = {
            "id": key, "name": scoring.name, "state": scoring.state, "error": scoring.error, "done": done,
            "total": len(scoring.gold), "notes": scoring.notes, "rows": rows,
        }  # fmt: skip
        if answers:
            state["answers"] = [
                {
                    "id": gold.id, "question": gold.question, "quotes": len(gold.quotes),
                    "f1": {
                        name: {counted: [round(s.f1, 3) for s in one[counted]] for counted in ("whole", "drafted")}
                        for name in scoring.signals
                        if (one := scoring.scores[name][number]) is not None
                    },
                }
                for number, gold in enumerate(scoring.gold[:done])
            ]  # fmt: skip
        return state

    def stop(self, key: str, owner: str) -> bool:
        """Stop a scoring of ``owner``; what is done is kept. Whether there was one."""
        with self._change:
            scoring = self._scorings.get(key)
            if scoring is None or scoring.owner != owner:
                return False
            scoring.cancel.set()
        return True

    def scoring(self, key: str) -> Scoring:
        """A scoring by its id. Raises Missing where there is none (any more)."""
        with self._change:
            scoring = self._scorings.get(key)
        if scoring is None:
            raise Missing("these scores are not kept any more: score again")
        return scoring

    def row(self, key: str, row: int | None) -> QuotedAnswer:
        """An answer of a scoring, with its known quotes. Raises UserError where there is none."""
        try:
            gold = self.scoring(key).gold
        except Missing as problem:  # a part of what is asked, not what its address names
            raise UserError(str(problem)) from None
        if row is None or not 0 <= row < len(gold):
            raise UserError(f"there is no answer number {row}: the scoring has {len(gold)}")
        return gold[row]


def _fits(target: Any, gold: QuotedAnswer) -> bool:
    from decoders.study.look.forced import answer_ids

    prompt = gold.record().prompt(target.tokenizer)
    return len(prompt.tokens) + len(answer_ids(target, gold.answer)) <= target.context_length


def _score(target: Any, gold: QuotedAnswer, name: str) -> dict[str, list[QuoteScore]] | None:
    """An answer's scores by ``MIN_RUNS`` under both ways to count; None where it does not hold its quotes."""
    from decoders.study.look.forced import answer_ids, forced

    trace = forced(target, gold.record().prompt(target.tokenizer), answer_ids(target, gold.answer), name)
    both = {counted: scores(trace, gold, MIN_RUNS, whole=counted == "whole") for counted in ("whole", "drafted")}
    return {name: one for name, one in both.items() if one is not None} if all(both.values()) else None
