"""Accuracy per task family: the share of the demo model's greedy answers that are the gold answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from decoders.prompt.tasks import stream
from decoders.prompt.tasks.example import FAMILIES, Family, TaskExample
from specviz.extras.training.answers import greedy_answers

HELD_OUT_SEED = 2026
NEAR = 0.95


@dataclass(frozen=True)
class FamilyScore:
    """Answers of one family: `exact` equal the reference, `near` have an edit similarity of at least 0.95.

    `near` includes the exact ones; `similarity` is the mean of difflib's ratio, from 0 to 1.
    """

    family: Family | Literal["all"]
    prompts: int
    exact: int
    near: int
    similarity: float


@dataclass(frozen=True)
class Miss:
    """An answer that is not the reference."""

    family: Family
    prompt: str
    reference: str
    answer: str


@dataclass(frozen=True)
class EvaluationReport:
    """Greedy answers to held-out prompts.

    >>> EvaluationReport(7, (FamilyScore("sums", 4, 3, 3, 0.9), FamilyScore("quote", 2, 1, 2, 0.9)), ()).total().exact
    4
    """

    seed: int
    scores: tuple[FamilyScore, ...]
    misses: tuple[Miss, ...]

    def total(self) -> FamilyScore:
        """The scores of all families together."""
        prompts, exact, near = (sum(getattr(s, name) for s in self.scores) for name in ("prompts", "exact", "near"))
        return FamilyScore(
            "all", prompts, exact, near, sum(s.similarity * s.prompts for s in self.scores) / max(1, prompts)
        )

    def to_json(self) -> str:
        """The scores, without the misses."""
        total = {"prompts": self.total().prompts, "exact": self.total().exact}
        scores = [asdict(s) for s in self.scores]
        return json.dumps({"seed": self.seed, "near_from": NEAR, "total": total, "families": scores}, indent=2)

    def table(self) -> str:
        """The scores as Markdown."""
        lines = ["| family | prompts | exact | near | mean similarity |", "|---|---|---|---|---|"]
        for s in (*self.scores, self.total()):
            name, count = "**all**" if s.family == "all" else s.family, max(1, s.prompts)
            exact, near = f"{s.exact} ({s.exact / count:.0%})", f"{s.near} ({s.near / count:.0%})"
            lines.append(f"| {name} | {s.prompts} | {exact} | {near} | {s.similarity:.3f} |")
        return "\n".join(lines)


def held_out_examples(n: int, seed: int = HELD_OUT_SEED) -> list[TaskExample]:
    """`n` examples that training never draws from; the families take turns, so all are equally many.

    >>> [e.family for e in held_out_examples(3, 1)]
    ['summary', 'quote', 'text_edit']
    """
    streams = {family: stream("held_out", seed, 0, {family: 1.0}) for family in FAMILIES}
    return [next(streams[FAMILIES[i % len(FAMILIES)]]) for i in range(n)]


def evaluate_demo(
    model_folder: Path,
    *,
    prompts: int = 200,
    seed: int = HELD_OUT_SEED,
    progress: Callable[[int, int], None] | None = None,
    rows: int = 16,
) -> EvaluationReport:
    """Answer `prompts` held-out prompts greedily, and compare the answers with the references.

    `progress` is told (prompts answered, prompts).

    print(evaluate_demo(Path("assets/demo/target"), prompts=60).table())
    """
    if not (model_folder / "config.json").exists():
        raise FileNotFoundError(
            f"{model_folder} holds no model: train one with `specviz train demo --out {model_folder}`"
        )
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    examples = held_out_examples(prompts, seed)
    texts = [
        tokenizer.apply_chat_template(e.messages[:-1], add_generation_prompt=True, tokenize=False) for e in examples
    ]
    encoded, references = (
        tokenizer(part, add_special_tokens=False)["input_ids"] for part in (texts, [e.reference for e in examples])
    )
    answers = greedy_answers(
        model, encoded, [len(ids) for ids in references], spare=24, padding=tokenizer.pad_token_id, rows=rows,
        progress=progress,
    )  # fmt: skip
    return score(examples, texts, tokenizer.batch_decode(answers, skip_special_tokens=True), seed)


def score(examples: list[TaskExample], prompts: list[str], answers: list[str], seed: int) -> EvaluationReport:
    """The report on `answers`, one per example."""
    similarities: dict[Family, list[float]] = {}
    misses: list[Miss] = []
    for example, prompt, answer in zip(examples, prompts, answers, strict=True):
        exact = answer == example.reference
        ratio = 1.0 if exact else SequenceMatcher(None, answer, example.reference, autojunk=False).ratio()
        similarities.setdefault(example.family, []).append(ratio)
        if not exact:
            misses.append(Miss(example.family, prompt, example.reference, answer))
    scores = tuple(
        FamilyScore(
            family=family,
            prompts=len(values),
            exact=len(values) - sum(m.family == family for m in misses),
            near=sum(value >= NEAR for value in values),
            similarity=round(sum(values) / len(values), 4),
        )
        for family in FAMILIES
        if (values := similarities.get(family))
    )
    return EvaluationReport(seed, scores, tuple(misses))


def probe_examples(count: int, seed: int) -> list[TaskExample]:
    """`count` held-out examples, as many of each family, that `held_out_examples` does not hold."""
    per_family = max(1, count // len(FAMILIES))
    return [e for f in FAMILIES for e in islice(stream("held_out", seed, 1, {f: 1.0}), per_family)]
