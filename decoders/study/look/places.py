"""Every place of a run's output, drafted by several methods: how far each would have come from there.

The model reads the run's text once; a drafter whose drafts follow from the text alone is then put at every place, the
run cut there. What would have stood is counted against the text, which is exact for a greedy, lossless run. The oracle
takes at each place the drafter that leads to the fewest steps in all. A drafter that learns from verdicts has no such
places: its drafts depend on the steps before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.draft.needs import Needs
from decoders.draft.pruning import RANK, pruned_draft
from decoders.drafters import select_method
from decoders.drafters.composite import CompositeDrafter, Part
from decoders.engine.length import AutoLength
from decoders.errors import UserError
from decoders.method.drafter import Drafter
from decoders.method.guard import GuardedDrafter
from decoders.model.state.memory import Context
from decoders.model.target_model.target import Target
from decoders.names import UNDER
from decoders.prompt.grammar import Matcher
from decoders.trace.run import RunRecord
from decoders.trace.trace import Trace
from decoders.verifiers.match import judged
from decoders.verifiers.sampling import Chooser

from .run_settings import sampling_of
from .whatif import ReadRun

NO_NEEDS = Needs()
NOT_SCORED = Scored(torch.zeros(0, 0))
LEARNS = "{} learns from verdicts, so that its draft at a place depends on the steps before: it has no oracle by place"


def follows_text(drafter: Drafter) -> bool:
    """True where drafts follow from the text alone, so that no verdict has to be learned first."""
    kind = type(drafter.inner if isinstance(drafter, GuardedDrafter) else drafter)
    learns = kind.observe is not Drafter.observe and kind.learns
    return not learns and kind.resume is Drafter.resume


def accepted_of(draft: Draft, text: Sequence[int]) -> int:
    """Drafted tokens that a target accepts which goes on with ``text``.

    >>> from decoders.draft.tree import DraftTree
    >>> accepted_of(Draft(DraftTree((5, 8, 9, 2), (-1, 0, 1, 0))), [8, 9, 1])
    2
    """
    return len(path_of(draft, text)) - 1


def path_of(draft: Draft, text: Sequence[int]) -> list[int]:
    """The nodes of a draft that a text goes along, the root first."""
    children, path = draft.tree.children(), [0]
    for token in text:
        child = children[path[-1]].get(token)
        if child is None:
            break
        path.append(child)
    return path


def replay_fault(run: RunRecord) -> str:
    """The reason why no place of a run can be replayed; "" where it can."""
    if sampling_of(run).greedy and run["method"].get("lossless", False) and not run.get("forced"):
        return ""
    return (
        "places are replayed of greedy runs of a lossless method: of others the text does not say what would have been "
        "accepted"
    )


class PlaceReplay:
    """A greedy, lossless run's text, read once; drafts of any method at any place of its output. Raises UserError for
    another run, and as ``ReadRun`` does.
    """

    def __init__(self, target: Target, trace: Trace) -> None:
        run = trace.run
        if fault := replay_fault(run):
            raise UserError(fault)
        self.read, self.trace, self.target = ReadRun(target, trace), trace, target
        self.start, self.text = run["prompt_length"], trace.output_ids
        self.stops = run.get("stop_ids", target.stop_ids)
        grammar = self.read.prompt.grammar
        self.matcher = grammar and Matcher(grammar, target.tokenizer, target.info["vocab"], self.stops, self.start)

    @property
    def places(self) -> range:
        """Lengths of the text at which a step may begin."""
        return range(self.start, self.start + len(self.text))

    def text_from(self, length: int) -> Sequence[int]:
        """The output from a place on."""
        return self.text[length - self.start :]

    @contextmanager
    def context(self, needs: Any) -> Iterator[Context]:
        """The whole run, as a drafter with these needs sees it."""
        with self.read.session.at(self.read.session.length, needs) as whole:
            yield replace(whole.context, grammar=self.matcher)

    def drafts(self, name: str, params: Mapping[str, Any] | None = None) -> Iterator[tuple[int, Draft]]:
        """A method's draft at each place, with its length. Raises UserError for one that learns, or lacks its part."""
        method, values = select_method(name.partition(UNDER)[0], params)
        parts = method.parts(self.target, values, self.read.prompt, Chooser(sampling_of(self.trace.run)), self.stops,
                             keep_prompt=True)  # fmt: skip
        if not follows_text(parts.drafter):
            raise UserError(LEARNS.format(method.title))
        if not self.read.serves(parts.needs):
            raise UserError(f"this run is too long to keep all that {method.name} reads of it")
        with self.context(parts.needs) as context:
            parts.drafter.prepare(context.cut(self.start))
            for length in self.places:
                budget = self.trace.run["max_new_tokens"] - (length - self.start) - 1
                if budget < 1:
                    yield length, Draft.empty(context.cut(length).root, "only one more token may be written")
                else:
                    yield length, parts.drafter.propose(context.cut(length), budget)


@dataclass(frozen=True, slots=True)
class Strip:
    """Per drafter the tokens of its draft that would have stood at each place of the output (from 0); the run's own
    steps and the oracle's, as the places where they begin. ``choices``: the drafter that the oracle takes in each.
    ``missing``: methods that have no places, and why.
    """

    reach: dict[str, list[int]]
    steps: list[int]
    oracle: list[int]
    choices: list[str]
    missing: dict[str, str]

    @property
    def regret(self) -> int:
        """Steps that the run took more than the oracle."""
        return len(self.steps) - len(self.oracle)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "regret": self.regret, "alone": {name: self.steps_of(name) for name in self.reach}}

    def steps_of(self, name: str) -> int:
        """The steps of a run by one drafter alone."""
        reach, place, count = self.reach[name], 0, 0
        while place < len(reach):
            place, count = place + reach[place] + 1, count + 1
        return count


def all_drafts(replay: PlaceReplay, names: Sequence[str]) -> tuple[dict[str, dict[int, Draft]], dict[str, str]]:
    """Each method's drafts by place, and why others have none. Raises UserError where none of the methods has
    places.
    """
    drafts, missing = dict[str, dict[int, Draft]](), dict[str, str]()
    for name in names:
        try:
            drafts[name] = dict(replay.drafts(name))
        except UserError as problem:
            missing[name] = str(problem)
    if not drafts:
        raise UserError("; ".join(missing.values()))
    return drafts, missing


def strip_of(
    replay: PlaceReplay, drafts: Mapping[str, Mapping[int, Draft]], missing: Mapping[str, str] | None = None
) -> Strip:
    """The strip of a run, from ``all_drafts``."""
    reach = {
        name: [accepted_of(own_drafts[length], replay.text_from(length)) for length in replay.places]
        for name, own_drafts in drafts.items()
    }
    steps = [length - replay.start for length in replay.trace.tables["steps"]["context"]]
    oracle, choices = shortest_path(reach)
    return Strip(reach, steps, oracle, choices, dict(missing or {}))


def shortest_path(reach: Mapping[str, Sequence[int]]) -> tuple[list[int], list[str]]:
    """The places where the fewest steps begin, and the drafter that is taken at each: the first of the best.

    >>> shortest_path({"a": [0, 2, 0, 0], "b": [1, 0, 0, 0]})
    ([0, 1], ['a', 'a'])
    """
    count = len(next(iter(reach.values())))
    steps_left, best = [0] * (count + 1), [""] * count
    for place in reversed(range(count)):
        ends = {name: min(count, place + tokens[place] + 1) for name, tokens in reach.items()}
        best[place] = min(ends, key=lambda name: steps_left[ends[name]])
        steps_left[place] = 1 + steps_left[ends[best[place]]]
    places, place = list[int](), 0
    while place < count:
        places.append(place)
        place = min(count, place + reach[best[place]][place] + 1)
    return places, [best[place] for place in places]


class ReplayedDrafter(Drafter):
    """Gives a method's drafts by place, as far as they are asked for."""

    def __init__(self, drafts: Mapping[int, Draft]) -> None:
        self.drafts = drafts

    def propose(self, context: Context, budget: int) -> Draft:
        draft = self.drafts[context.length]
        depths = draft.tree.depths
        if max(depths) <= budget:
            return draft
        nodes = [node for node, depth in enumerate(depths) if depth <= budget]
        return pruned_draft(draft, nodes, [0.0] * len(depths), cause=RANK, proposal=draft)


def composite_of(drafts: Mapping[str, Mapping[int, Draft]], rows: int | None = None) -> CompositeDrafter:
    """The drafter that joins replayed ones (or cuts a single one's drafts, in the same way)."""
    return CompositeDrafter([Part(name, ReplayedDrafter(places), NO_NEEDS) for name, places in drafts.items()], rows)


def replayed_steps(
    replay: PlaceReplay, drafter: Drafter, length: AutoLength | None = None
) -> Iterator[tuple[Draft, Verdict]]:
    """Steps of a run by a drafter of replayed drafts, over the replay's text; no model computes."""
    with replay.context(NO_NEEDS) as context:
        place = 0
        while place < len(replay.text):
            point, text = context.cut(replay.start + place), replay.text[place:]
            budget = max(1, replay.trace.run["max_new_tokens"] - place - 1)
            draft = drafter.propose(point, budget) if length is None else length.propose(drafter, point, budget)
            path = path_of(draft, text)
            verdict = judged(draft, path, text[len(path) - 1] if len(path) <= len(text) else None)
            drafter.observe(draft, NOT_SCORED, verdict)
            place += min(len(path), len(text))
            yield draft, verdict


def frontier(
    replay: PlaceReplay, drafts: Mapping[str, Mapping[int, Draft]], sizes: Sequence[int] = (4, 8, 16, 32, 64)
) -> dict[str, list[float]]:
    """Tokens per step by rows: of each drafter alone, its best nodes alone verified, and of all of them merged."""
    groups = {name: {name: places} for name, places in drafts.items()}
    if len(drafts) > 1:
        groups["merged"] = dict(drafts)
    return {
        name: [len(replay.text) / sum(1 for _ in replayed_steps(replay, composite_of(group, rows))) for rows in sizes]
        for name, group in groups.items()
    }
