"""Held-out tasks in the prompt templates of CASD's experiments (its table 7), each on the datasets that are like it.

The texts are the demo's, not the datasets': their answers stand in one passage, so that two questions that need several
(2WikiMultihopQA, HotpotQA) are asked in words alone; the line that is to be completed is cut out of a function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from decoders.prompt.files import PromptRecord
from decoders.prompt.templates import templates

TaskPrompts = Callable[[str, int], list[PromptRecord]]  # a task of the demo's and how many prompts → the prompts
QUOTE_OPENING = " The passage says:"  # what follows an answer of the demo's
SHOTS = 2  # examples before TriviaQA's question
REPORTS = 3  # passages of Multi-News


def fill_template(name: str, count: int, held_out: TaskPrompts) -> list[PromptRecord]:
    """``count`` prompts in the template of the dataset ``name``."""
    if name in ("multi_news", "gov_report"):
        report_count = REPORTS if name == "multi_news" else 1
        texts = held_out("summary", count * report_count)
        records = [_summary(texts[n * report_count : (n + 1) * report_count]) for n in range(count)]
    elif name in ("repobench-p", "lcc"):
        records = [_completion(record, split=name == "repobench-p") for record in held_out("code_edit", count)]
    else:
        questions = [replace(record, reference=_answer(record)) for record in held_out("quote", count + SHOTS)]
        shots = "\n\n".join(f"{_passage(record)}\n{record.reference}" for record in questions[count:])
        records = questions[:count]
        if name == "triviaqa":
            records = [replace(record, context=(shots,), question=_passage(record)) for record in records]
    text = templates()[name].text
    return [
        replace(record, id=f"{name}-{number}", category=name, instruction=text)
        for number, record in enumerate(records, 1)
    ]  # fmt: skip


def _answer(record: PromptRecord) -> str:
    return record.reference.partition(QUOTE_OPENING)[0]


def _passage(record: PromptRecord) -> str:
    """A question over a passage, as LongBench writes it."""
    return f"Passage:\n{' '.join(record.context)}\nQuestion:\n{record.question}\nAnswer:"


def _summary(records: Sequence[PromptRecord]) -> PromptRecord:
    """One prompt of several texts, which hopes for the summaries of all."""
    context = tuple(text for record in records for text in record.context)
    return replace(records[0], context=context, question="", reference=" ".join(report.reference for report in records))


def _completion(record: PromptRecord, *, split: bool) -> PromptRecord:
    """A code cut off before one of its lines, which is the reference; ``split``: its function is the question."""
    lines = [line for line in "\n".join(record.context).splitlines() if not line.startswith("```")]
    at = next(n for n in range(len(lines) - 1, 0, -1) if lines[n].strip())
    begins = max((n for n in range(at) if lines[n].startswith("def ")), default=0)
    question = "".join(f"{line}\n" for line in lines[begins:at]) if split else ""
    context = "".join(f"{line}\n" for line in lines[: begins if split else at])
    return replace(record, context=(context,), question=question, reference=lines[at])
