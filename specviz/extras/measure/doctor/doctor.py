"""The drafter doctor: why a head or draft model has little accepted, from teacher-forced drafts and controls.

The target writes its own greedy answers; a drafter drafts along them (``forced_drafts``), as it is and with one thing
changed at a time (``controls``). A change that helps names a fault of the setup. What no change explains is
measured by itself: a draft vocabulary that misses the text, later positions that collapse, verify rows that differ from
single ones, a long context.

A change helps where, over the same places, the log-probability that the drafter gives to the text's tokens rises by
``GAIN`` nats or more with a paired z of ``SURE`` or more: this moves long before the acceptance does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

import numpy as np

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.engine.decoding import generate
from decoders.errors import UserError
from decoders.names import QUICK
from decoders.prompt.prompt import Prompt

from ..stages import Stage
from .controls import Control, ControlOutcome, controls
from .forced_drafts import PLACES, Drafting, PlacedDrafts, ReadText, drafts, places_of
from .screening import MOST_CONFIRMED, SCREEN_DEPTH, best_of_rest, few_places, promising
from .server import ServerNumbers, compare

SCHEMA = "specdoctor/1"
GAIN, SURE = 0.1, 4.0  # nats, and standard errors
FORM_GAIN = 0.03  # of β, where the prompt is written in another form
OUTSIDE_SHARE = 0.12  # share of the text's tokens that cannot be drafted
COLLAPSE = 0.5  # of the first position's acceptance, which later ones should keep behind the text's own tokens
FLIPS = 0.005  # share of the target's first choices that change with the rows beside them
LONG = 512  # tokens of context from which a decay is looked for
WEAK = 1.3  # an acceptance length below which a part that is wired right needs more training
FAR, RECORD = 0.8, 0.25  # of the part's own held-out number: doubtful below, a fault below (other text costs half)
SHARE = 0.5  # of the best gain: of a drafter that is broken many changes make something better
ROWS_PLACES, ROWS = 12, 6
FAULT, NOTE = "fault", "note"
IMPRECISE = (
    "the target's precision costs acceptance: the head was trained on states of another one. Serve the target in the "
    "precision that the head was trained for, or train the head on this target's states"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause with its ``number``, the ``control`` that isolates it, and the sentence that says what to change.
    ``level``: a fault, or a note that fails no check. ``gain`` ranks findings: nats, or what is nearest to them.
    """

    level: str
    cause: str
    number: str
    control: str
    advice: str
    gain: float


@dataclass(frozen=True, slots=True)
class Report:
    """The doctor's measurements and conclusions. ``base`` is the drafter as it is."""

    model: str
    part: str
    texts: int
    places: int
    temperature: float
    base: ControlOutcome
    beta: float
    outside: float
    controls: list[ControlOutcome] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == FAULT]

    @property
    def verdict(self) -> str:
        return verdict(self.findings)

    @property
    def state(self) -> str:
        """State in a word: "fault", "doubt" (far below the part's own record, and no cause found), or "ok"."""
        is_doubtful = any(finding.cause == "record" for finding in self.findings)
        return FAULT if self.faults else "doubt" if is_doubtful else "ok"

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self), "verdict": self.verdict, "state": self.state}


@dataclass(frozen=True, slots=True)
class Form:
    """The same prompts written in another form (chat template, system prompt, thinking)."""

    cause: str
    change: str
    advice: str
    prompts: Sequence[Prompt]


def examine(
    drafting: Drafting, prompts: Sequence[Prompt], *, progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Report:  # fmt: skip
    """Examine a drafter on prompts, at once; ``settings`` are those of ``examination``.

    Raises UserError where the answers are too short for a draft.
    """
    stages = examination(drafting, prompts, **settings)
    while True:
        try:
            stage = next(stages)
        except StopIteration as end:
            return end.value
        if progress is not None:
            progress(stage.done, stage.total)


def examination(
    drafting: Drafting,
    prompts: Sequence[Prompt],
    *,
    part: str = "",
    max_new_tokens: int = 48,
    places: int = PLACES,
    temperature: float = 1.0,
    forms: Sequence[Form] = (),
    exact: Callable[[], Drafting] | None = None,
    server: ServerNumbers | None = None,
    skipped_causes: Sequence[str] = (),
    answers: Sequence[Sequence[int]] | None = None,
) -> Generator[Stage, None, Report]:
    """Stages of an examination, which returns the report: between two of them the target may do other work.

    ``forms`` are the prompts in other forms; ``exact`` opens the same drafter beside the target in full precision;
    ``server`` is what a server says of its acceptance; ``answers`` are the target's own, where they are known.
    Raises UserError where the answers are too short for a draft.
    """
    target, depth = drafting.target, drafting.deepest
    all_controls = list(controls(drafting))
    several = [control for control in all_controls if control.screened]
    full_controls = [control for control in all_controls if not control.screened]
    total = (2 - (answers is not None)) * len(prompts) + len(full_controls) + len(several) + MOST_CONFIRMED
    total += len(forms) + (exact is not None) + 2
    counter = count(1)
    if answers is None:
        answers = []
        for number, prompt in enumerate(prompts, 1):
            answers.append(generate(target, prompt, QUICK, max_new_tokens=max_new_tokens))
            yield Stage(next(counter), total, f"answer {number} of {len(prompts)}")
    full_texts = [[*prompt.tokens, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
    sizes = [(len(prompt.tokens), len(tokens)) for prompt, tokens in zip(prompts, full_texts, strict=True)]
    chosen_places = places_of(sizes, depth, places)
    if not any(chosen_places):
        raise UserError(
            f"the answers are too short to draft {depth} tokens along them: give prompts with longer answers, or a "
            "larger --max-new-tokens"
        )
    layers = {layer for case in (drafting, *(control.drafting for control in all_controls)) for layer in _read(case)}
    texts = list[ReadText]()
    for tokens, (start, _), at in zip(full_texts, sizes, chosen_places, strict=True):
        if at:
            texts.append(ReadText.read(target, tokens, start, sorted(layers), at))
        yield Stage(next(counter), total, "the target reads the answers")
    base = drafts(drafting, texts, temperature)
    yield Stage(next(counter), total, "drafts as they are")
    outcomes, findings = list[ControlOutcome](), list[Finding]()
    for control in full_controls:
        control_drafts = drafts(control.build(), texts, temperature)
        outcomes.append(control_result := _measure(control.cause, control.change, base, control_drafts))
        findings += _helps(control_result, control.advice, base)
        yield Stage(next(counter), total, f"{control.cause}: {control.change}")
    screenings = list[tuple[Control, ControlOutcome]]()
    few_texts, short = few_places(texts), drafting.with_depth(SCREEN_DEPTH)
    screen_base = drafts(short, few_texts, temperature) if several else base
    for control in several:
        control_drafts = drafts(control.build().with_depth(SCREEN_DEPTH), few_texts, temperature)
        screenings.append((control, _measure(control.cause, control.change, screen_base, control_drafts)))
        yield Stage(next(counter), total, f"{control.cause}: {control.change}")
    finalists = promising(screenings)
    for control in finalists:
        control_drafts = drafts(control.build(), texts, temperature)
        outcomes.append(control_result := _measure(control.cause, control.change, base, control_drafts))
        if control_result.gain >= SHARE * max(outcome.gain for outcome in outcomes):
            findings += _helps(control_result, control.advice, base)
        yield Stage(next(counter), total, f"{control.cause}: {control.change}")
    counter = count(next(counter) + MOST_CONFIRMED - len(finalists))
    for form in forms:
        control_result, finding = _form(form, drafting, answers, chosen_places, sizes, base, temperature)
        outcomes.append(control_result)
        findings += finding
        yield Stage(next(counter), total, f"{form.cause}: {form.change}")
    if exact is not None:
        outcomes.append(control_result := _exact(exact(), full_texts, sizes, chosen_places, base, temperature))
        findings += _helps(control_result, IMPRECISE, base)
        yield Stage(next(counter), total, control_result.change)
    findings += [*_vocabulary(base), *_later_findings(drafting, base), *_rows(texts)]
    findings += [*_decay(base), *_drawing(base, temperature)]
    if server is not None:
        findings += [Finding(*row) for row in compare(server, base, outcomes)]
    trial_count = len(outcomes) + len(several) - len(finalists)
    if not any(finding.level == FAULT for finding in findings):
        plain = base if temperature == 1.0 else drafts(drafting, texts, 1.0)
        findings += _record(drafting.network, plain, trial_count)
    if not any(finding.level == FAULT or finding.cause == "record" for finding in findings) and base.length < WEAK:
        findings.append(Finding(
            NOTE, "training", f"{base.length:.2f} tokens per step", f"none of {trial_count} controls helps",
            "no setup that was tried is better, so the part may have learnt little: train it on more of the target's "
            "own answers (specviz train goes on from its checkpoint)", 0.0,
        ))  # fmt: skip
    findings = _rank(findings)
    outcomes += best_of_rest(screenings, finalists)
    yield Stage(next(counter), total, "verify rows against single rows")
    first = _measure("as it is", "", base, base)
    return Report(
        target.name, part, len(texts), len(base.is_own), temperature, first, float(base.drawn_probs.mean()),
        float(base.is_outside[:, 0].mean()), outcomes, findings, list(skipped_causes),
    )  # fmt: skip


def _rank(findings: Sequence[Finding]) -> list[Finding]:
    """Faults first, each cause once, by what a change gains."""
    sorted_findings = sorted(findings, key=lambda finding: (finding.level != FAULT, -finding.gain))
    causes = set[str]()
    return [finding for finding in sorted_findings if not (finding.cause in causes or causes.add(finding.cause))]


def _read(drafting: Drafting) -> set[int]:
    return {drafting.reads.layers.get(layer, layer) for layer in drafting.layers}


def pair_up(difference: np.ndarray) -> tuple[float, float]:
    """A mean difference and how many of its standard errors it is.

    >>> pair_up(np.array([1.0, 1.0, 1.0, 1.0]))[0], round(pair_up(np.array([0.0, 2.0]))[1], 3)
    (1.0, 1.0)
    """
    mean = float(difference.mean()) if len(difference) else 0.0
    error = float(difference.std(ddof=1)) / len(difference) ** 0.5 if len(difference) > 1 else 0.0
    if error == 0.0:
        return mean, float(np.sign(mean)) * SURE * 10
    return mean, mean / error


def _measure(cause: str, change: str, base: PlacedDrafts, control_drafts: PlacedDrafts) -> ControlOutcome:
    in_vocab = ~(base.is_outside | control_drafts.is_outside)
    rises = np.where(in_vocab, control_drafts.text_logprobs - base.text_logprobs, 0.0).sum(1)
    rise = rises / np.maximum(in_vocab.sum(1), 1)
    gain, z = pair_up(rise[in_vocab.any(1)])
    lengths = control_drafts.length, control_drafts.conditional, control_drafts.by_position
    return ControlOutcome(cause, change, *lengths, gain, z, places=len(base.is_own))


def _helps(outcome: ControlOutcome, advice: str, base: PlacedDrafts) -> Iterator[Finding]:
    if outcome.gain >= GAIN and outcome.z >= SURE:
        lengths = f"{base.length:.2f} → {outcome.length:.2f}"
        number = f"acceptance length {lengths}, +{outcome.gain:.2f} nats (z {outcome.z:.1f})"
        yield Finding(FAULT, outcome.cause, number, outcome.change, advice, outcome.gain)


def _form(
    form: Form, drafting: Drafting, answers: Sequence[Sequence[int]], chosen_places: Sequence[Sequence[int]],
    sizes: Sequence[tuple[int, int]], base: PlacedDrafts, temperature: float,
) -> tuple[ControlOutcome, list[Finding]]:  # fmt: skip
    """The same answers behind prompts in another form: how well drafter and target agree there (β)."""
    texts = list[ReadText]()
    for prompt, answer, places, (start, _) in zip(form.prompts, answers, chosen_places, sizes, strict=True):
        if places:
            moved_places = [place - start + len(prompt.tokens) for place in places]
            tokens = [*prompt.tokens, *answer]
            layers = sorted(_read(drafting))
            texts.append(ReadText.read(drafting.target, tokens, len(prompt.tokens), layers, moved_places))
    form_drafts = drafts(drafting, texts, temperature)
    gain, z = pair_up(form_drafts.drawn_probs - base.drawn_probs)
    outcome = ControlOutcome(
        form.cause, form.change, form_drafts.length, form_drafts.conditional, form_drafts.by_position, gain, z, "β"
    )
    if gain < max(FORM_GAIN, 0.15 * float(base.drawn_probs.mean())) or z < SURE:
        return outcome, []
    number = f"β {base.drawn_probs.mean():.3f} → {form_drafts.drawn_probs.mean():.3f} on the same answers (z {z:.1f})"
    return outcome, [Finding(FAULT, form.cause, number, form.change, form.advice, gain * 10)]


def _exact(
    drafting: Drafting, full_texts: Sequence[Sequence[int]], sizes: Sequence[tuple[int, int]],
    chosen_places: Sequence[Sequence[int]], base: PlacedDrafts, temperature: float,
) -> ControlOutcome:  # fmt: skip
    """The same texts with states of the target in full precision."""
    texts = [
        ReadText.read(drafting.target, tokens, start, sorted(_read(drafting)), at)
        for tokens, (start, _), at in zip(full_texts, sizes, chosen_places, strict=True) if at
    ]  # fmt: skip
    return _measure("precision", "states of the target in float32", base, drafts(drafting, texts, temperature))


def _vocabulary(base: PlacedDrafts) -> Iterator[Finding]:
    miss_share = float(base.is_outside[:, 0].mean())
    if miss_share > OUTSIDE_SHARE:
        hit = float(base.hits[:, 0][~base.is_outside[:, 0]].mean()) if not base.is_outside[:, 0].all() else 0.0
        yield Finding(
            FAULT, "draft vocabulary", f"{miss_share:.0%} of the text's tokens cannot be drafted",
            f"where they can, the first token is accepted {hit:.0%} of the time, over all {base.hits[:, 0].mean():.0%}",
            "take a draft vocabulary that is larger, or counted on text like yours (specviz train … --draft-vocab)",
            miss_share * 5,
        )  # fmt: skip


def _later_findings(drafting: Drafting, base: PlacedDrafts) -> Iterator[Finding]:
    """Later positions of a drafter that reads its own states, behind the text's own tokens."""
    rates = base.conditional
    if drafting.forced_chain.feeds_back and len(rates) > 1:
        gain, z = pair_up(COLLAPSE * base.hits[:, 0] - base.hits[:, 1:].mean(1))
        if gain > 0 and z >= SURE:
            shares = ", ".join(f"{rate:.2f}" for rate in rates)
            yield Finding(
                FAULT, "later positions", f"acceptance by position {shares}, behind the text's own tokens",
                "the first position reads the target's states, later ones the drafter's own",
                "later tokens suffer from the states that the drafter feeds back: check what is fed back, or train "
                "with test-time training (its own states, five steps)", max(GAIN, gain * 10),
            )  # fmt: skip
    if drafting.forced_chain.parallel:
        in_vocab = ~base.is_outside[:, 0]
        for shifted_logprobs, expected, direction, guess_text in (
            (base.earlier_logprobs, "the root itself", "earlier",
             "the token that the target itself gives. Leave that head out, or count the others from the second one"),
            (base.later_logprobs, "the token after next", "later",
             "the second token behind the root. Look for a head that was left out or dropped"),
        ):  # fmt: skip
            gain, z = pair_up((shifted_logprobs - base.text_logprobs)[:, 0][in_vocab])
            if gain >= GAIN and z >= SURE:
                yield Finding(
                    FAULT, "anchor", f"the first head expects {expected} by {gain:.2f} nats more (z {z:.1f})",
                    f"the same drafts against the text one token {direction}",
                    f"the heads are counted from another token: the first one here guesses {guess_text}", gain,
                )  # fmt: skip


def _rows(texts: Sequence[ReadText]) -> Iterator[Finding]:
    """Rows that are verified together against the same rows one by one."""
    flips = total = 0
    farthest = 0.0
    for text in texts[:ROWS_PLACES]:
        place, tokens, session = text.places[len(text.places) // 2], text.tokens, text.session
        next_tokens = [int(token) for token in tokens[place + 1 : place + 1 + ROWS]]
        with session.at(place + 1, Needs()) as part:
            rows = part.score(Draft(DraftTree.chain(int(tokens[place]), next_tokens))).logits.float().clone()
        for number in range(len(next_tokens) + 1):
            with session.at(place + 1 + number, Needs()) as part:
                single_row = part.score(Draft(DraftTree.chain(int(tokens[place + number]), []))).logits[0].float()
            flips += int(single_row.argmax()) != int(rows[number].argmax())
            farthest = max(farthest, float((single_row - rows[number]).abs().max()))
            total += 1
    if flips > FLIPS * total:
        yield Finding(
            FAULT if flips > 3 * FLIPS * total else NOTE, "verify rows",
            f"{flips} of {total} first choices change with the rows beside them (logits by up to {farthest:.2g})",
            f"{ROWS + 1} rows in one forward against each alone",
            "what is verified is not what plain decoding computes: drafts are rejected by rounding. Compute in "
            "float32, or use kernels whose rows do not depend on the batch", 10 * flips / total,
        )  # fmt: skip


def _decay(base: PlacedDrafts) -> Iterator[Finding]:
    """Places behind long contexts against those behind short ones."""
    if base.lengths.max() < LONG:
        return
    far = base.lengths >= max(LONG, int(np.median(base.lengths)))
    near, late = base.drawn_probs[~far], base.drawn_probs[far]
    if len(near) < 20 or len(late) < 20:
        return
    error = (near.var() / len(near) + late.var() / len(late)) ** 0.5
    if late.mean() < 0.6 * near.mean() and near.mean() - late.mean() > SURE * error:
        yield Finding(
            FAULT, "context", f"β {near.mean():.3f} behind short contexts, {late.mean():.3f} from {LONG} tokens on",
            "places behind long contexts against those behind short ones",
            "the drafter was trained on shorter texts, or its windows or rotary scaling are not applied: train it on "
            "longer ones, or check both", float(near.mean() - late.mean()) * 10,
        )  # fmt: skip


def _record(network: Any, base: PlacedDrafts, trial_count: int) -> Iterator[Finding]:
    """The part's own held-out number against what it reaches here, where no control helps."""
    training = getattr(network, "about", {}).get("training") or {}
    if training.get("top1"):
        words, held_out, hit_values = "of its first guesses are right", training["top1"], base.hits[:, 0]
    elif training.get("acceptance"):
        words, held_out, hit_values = "of its first drafts are accepted (β)", training["acceptance"], base.drawn_probs
    else:
        return
    mean, places = float(hit_values.mean()), len(base.is_own)
    z = (held_out - mean) / max(held_out * (1 - held_out) / places, 1e-9) ** 0.5
    if mean >= FAR * held_out or z < SURE:
        return
    number = f"{mean:.3f} {words} here, where its own training measured {held_out:.3f} (z {z:.1f})"
    control = f"its own log, on held-out text, against {places} places here; none of {trial_count} controls helps"
    if mean < RECORD * held_out:
        yield Finding(
            FAULT, "record", number, control,
            "this is not the part that was trained, or not with this target: look for a head that is missing or in "
            "another place, for tensors of another checkpoint, and for text unlike its training's", 0.0,
        )  # fmt: skip
    else:
        yield Finding(
            NOTE, "record", number, control,
            "no cause was found: either these texts are unlike its training's (examine it on some of those), or "
            "something is wrong that no control undoes, such as tensors of another checkpoint", 0.0,
        )  # fmt: skip


def _drawing(base: PlacedDrafts, temperature: float) -> Iterator[Finding]:
    """Compare drafts of first choices with drawn ones where the target draws."""
    gain, z = pair_up(base.drawn_probs - base.greedy)
    if abs(z) < SURE:
        return
    better, worse = ("drawn", "first choices") if gain > 0 else ("first choices", "drawn")
    yield Finding(
        NOTE, "drawn drafts",
        f"first token accepted: drawn {base.drawn_probs.mean():.3f}, first choice {base.greedy.mean():.3f}",
        f"at temperature {temperature:g}, p of the drafter's first choice against Σ min(p, q)",
        f"where the target draws its tokens, drafts that are {better} are accepted more often than {worse}",
        abs(gain),
    )  # fmt: skip


def verdict(findings: Sequence[Finding]) -> str:
    """The conclusion in a clause; where no cause was found it never says that nothing is wrong."""
    faults = sum(finding.level == FAULT for finding in findings)
    if faults:
        return f"{faults} fault{'s' * (faults > 1)} found"
    record = next((finding for finding in findings if finding.cause == "record"), None)
    return "no fault found" if record is None else f"no cause found, but {record.number}"
