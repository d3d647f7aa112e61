"""Signals that tell an answer's sources, scored by known quotes in the background, one by one (PLD+ table 10)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from decoders.errors import UserError
from decoders.study.attribute.quotes import QuotedAnswer, QuoteScore, mean_score, parse_rows, scores
from specviz.places import new_id
from specviz.server.bodies import Body, Id, needs
from specviz.server.desk import Desk, Service, get, post
from specviz.server.forms import Missing
from specviz.server.http import Owner
from specviz.server.tasks import Task, Tasks

if TYPE_CHECKING:
    from decoders import Prompt

MIN_RUNS = tuple(range(1, 13))
MAX_QUOTED = 4 << 20  # characters of a QuoteSum file
MAX_ROWS, MAX_SCORINGS = 500, 2


def chosen_signals(desk: Desk, names: Sequence[str]) -> tuple[str, ...]:
    """Names of signals, each once. Raises UserError where there is none, or one is no signal."""
    signal_names = [name for name, method in desk.methods().items() if method.signal]
    if not names:
        raise UserError(f"no signal is chosen: choose at least one of {', '.join(signal_names)}")
    for name in names:
        if name not in signal_names:
            raise UserError(f"there is no signal {name[:40]!r}: choose of {', '.join(signal_names)}")
    return tuple(dict.fromkeys(names))


def unfit(desk: Desk, name: str, prompt: Prompt) -> str:
    """The reason why a method cannot draft for this prompt on the loaded model; "" if it can."""
    target: Any = desk.target()
    method = desk.methods()[name]
    if missing := method.missing(target):
        return f"{method.title} was left out: {missing}"
    if method.needs(target, method.params()).pool and prompt.context_pool() is None:
        return f"{method.title} was left out: it drafts from passages, and this prompt has none"
    return ""


class ScoreRows(Body):
    """QuoteSum rows to score, one JSON object a line; without text, as many answers of the demo's quote task."""

    signals: list[str] = Field(default=[])
    text: str | None = None
    name: str | None = None
    limit: Annotated[
        int, Field(ge=1, le=MAX_ROWS),
        needs(f"the number of answers is {{given}}: a whole number from 1 to {MAX_ROWS}, please"),
    ] = MAX_ROWS  # fmt: skip


@dataclass(eq=False, kw_only=True)
class Scoring(Task):
    """Known quotes under test: what was asked, and the scores of every answer so far.

    ``scores`` has one entry per answer and method, in the order of ``gold``: {"whole", "drafted"} → scores by
    ``MIN_RUNS``, None where the answer could not be scored.
    """

    name: str
    gold: list[QuotedAnswer]
    signals: tuple[str, ...]
    notes: list[str]
    scores: dict[str, list[dict[str, list[QuoteScore]] | None]] = field(default_factory=dict)
    done: int = 0


class Scorings(Service):
    """The part of a page that scores signals by known quotes; the last scorings are kept when they are over."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._tasks = Tasks[Scoring]("score quotes", "these scores are not kept any more: score again")

    def close(self) -> None:
        """Stop all scorings."""
        self._tasks.close()

    @post("score")
    def score(self, request: ScoreRows, owner: Owner = "") -> dict[str, Any]:
        """Begin to score: {"id", "answers", "notes"}. Raises UserError."""
        target = self.desk.target()
        names = chosen_signals(self.desk, request.signals)
        limit = min(request.limit, self.desk.rules.runs or request.limit)  # runs are per minute and user
        notes: list[str] = []
        if request.text is not None:
            text = request.text.removeprefix("\ufeff")
            if len(text) > MAX_QUOTED:
                raise UserError(f"the rows have {len(text):,} characters and at most {MAX_QUOTED:,} are taken")
            name = " ".join((request.name or "pasted rows").split())[:80]
            gold, notes = parse_rows(text, "row", limit, name)
        else:
            from decoders.study.attribute.demo_quotes import demo_quotes

            name, gold = "the demo generator's quotes", demo_quotes(limit)
        usable_answers = [answer for answer in gold if fits(target, answer)]
        if not usable_answers:
            raise UserError(f"no prompt leaves room for its answer in the model's context of {target.context_length}")
        if len(usable_answers) < len(gold):
            notes.append(f"{len(gold) - len(usable_answers)} of {len(gold)} answers do not fit the model's context")
        first = usable_answers[0].record().prompt(target.tokenizer)
        missing = {n: unfit(self.desk, n, first) for n in names}
        usable = tuple(n for n in names if not missing[n])
        notes += [reason for reason in missing.values() if reason]
        if not usable:
            raise UserError(f"no signal can attribute these: {'; '.join(notes)}")
        scoring = Scoring(
            id=new_id(), owner=owner, name=name, gold=usable_answers, signals=usable, notes=notes,
            scores={n: [] for n in usable}
        )  # fmt: skip

        def check(going: Sequence[Scoring]) -> None:
            if self.desk.rules.is_shared and any(task.owner == owner for task in going):
                raise UserError("one of your scorings goes on already: try again when it is over")
            if len(going) >= MAX_SCORINGS:
                raise UserError(f"{MAX_SCORINGS} scorings are going on already: try again when one is over")

        self._tasks.begin(scoring, lambda task: self._score_all(task, target), check)
        return {"id": scoring.id, "answers": len(usable_answers), "notes": notes}

    def _score_all(self, scoring: Scoring, target: Any) -> bool:
        for gold in scoring.gold:
            for name in scoring.signals:
                if scoring.cancel.is_set():
                    return False
                scoring.scores[name].append(self.desk.on_worker(lambda g=gold, n=name: _score(target, g, n)))
            scoring.done += 1
        return True

    @get("scores/{key}")
    def state(self, key: str, answers: bool = False) -> dict[str, Any]:
        """The progress of a scoring: "rows" of the sweep over min_run, and with ``answers`` each answer's own scores.
        Raises Missing where there is none (any more).
        """
        scoring = self._tasks.find(key)
        finished_count, rows = scoring.done, []
        for name in scoring.signals:
            of = scoring.scores[name][:finished_count]
            for unit in ("whole", "drafted"):
                scored_answers = [answer[unit] for answer in of if answer is not None]
                if scored_answers:
                    mean_scores = [mean_score([answer[i] for answer in scored_answers]) for i in range(len(MIN_RUNS))]
                    rows.append({
                        "method": name, "title": self.desk.methods()[name].title, "counted": unit,
                        "examples": len(scored_answers), "scores": [dataclasses.asdict(score) for score in mean_scores],
                    })  # fmt: skip
        state: dict[str, Any] = {
            "id": key, "name": scoring.name, "state": scoring.state, "error": scoring.error, "done": finished_count,
            "total": len(scoring.gold), "notes": scoring.notes, "rows": rows,
        }  # fmt: skip
        if answers:
            state["answers"] = [
                {
                    "id": gold.id, "question": gold.question, "quotes": len(gold.quotes),
                    "f1": {
                        name: {unit: [round(s.f1, 3) for s in answer_scores[unit]] for unit in ("whole", "drafted")}
                        for name in scoring.signals
                        if (answer_scores := scoring.scores[name][number]) is not None
                    },
                }
                for number, gold in enumerate(scoring.gold[:finished_count])
            ]  # fmt: skip
        return state

    @post("stop")
    def stop(self, id: Id, owner: Owner) -> bool:
        """Stop a scoring of ``owner``; what is done is kept. Whether there was one."""
        return self._tasks.cancel(id, owner)

    def row(self, key: str, row: int | None) -> QuotedAnswer:
        """An answer of a scoring, with its known quotes. Raises UserError where there is none."""
        try:
            gold = self._tasks.find(key).gold
        except Missing as problem:  # a part of what is asked, not what its address names
            raise UserError(str(problem)) from None
        if row is None or not 0 <= row < len(gold):
            raise UserError(f"there is no answer number {row}: the scoring has {len(gold)}")
        return gold[row]


def fits(target: Any, gold: QuotedAnswer, new: int = 0) -> bool:
    """True where a prompt leaves room for its answer (or ``new`` tokens) in the model's context."""
    from decoders.study.look.teacher_forcing import answer_ids

    prompt = gold.record().prompt(target.tokenizer)
    return len(prompt.tokens) + (new or len(answer_ids(target, gold.answer))) <= target.context_length


def _score(target: Any, gold: QuotedAnswer, name: str) -> dict[str, list[QuoteScore]] | None:
    """An answer's scores by ``MIN_RUNS`` under both ways to count; None where it does not hold its quotes."""
    from decoders.study.look.teacher_forcing import answer_ids, forced_trace

    trace = forced_trace(target, gold.record().prompt(target.tokenizer), answer_ids(target, gold.answer), name)
    scores_by_way = {unit: scores(trace, gold, MIN_RUNS, whole=unit == "whole") for unit in ("whole", "drafted")}
    return (
        {name: way_scores for name, way_scores in scores_by_way.items() if way_scores is not None}
        if all(scores_by_way.values())
        else None
    )
