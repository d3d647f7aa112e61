"""The prompts an experiment runs on: the examples, fresh held-out ones with references, or a user's file.

A set is named ``examples``, ``demo``, ``turns``, ``quotes`` or ``templates``, with the tasks wanted after a colon
(``demo:code_edit,quote``), or is a sample of a set that others published, of several as ``gsm8k,mt-bench``; any other
name is a prompt file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.folders import write_bytes
from decoders.prompt import codec
from decoders.prompt.files import PromptRecord, by_category, read_prompts
from decoders.prompt.templates import templates
from decoders.sweep.plan import Case
from specviz.views.examples import SAMPLES, examples, sample_file
from specviz.views.known_quotes import is_quotesum, quoted_records
from specviz.views.prompt_templates import fill_template

if TYPE_CHECKING:
    from decoders.trace.trace import Trace

MAX_FILE = 4 << 20  # characters of a prompt file that is sent
SEED = 2027  # of the held-out stream: not the one that the target was judged with
SETS = {
    "demo": "Held-out prompts with references",
    "examples": "The examples of the Inspect page",
    "turns": "Chats: first turn and second turn",
    "quotes": "Answers with known quotes",
    "templates": "Held-out tasks in CASD's prompt templates",
    **{name: f"{title}, a sample" for name, title in SAMPLES.items()},
}
FIRST, SECOND = "turn 1", "turn 2"
ALL_TASKS = "all"  # the mean over all tasks, beside them
DEMO = ("summary", "quote", "text_edit", "code_edit", "chat", "sums")  # the tasks of the held-out prompts
NAMES = {
    "summary": "summary", "quote": "quote", "text_edit": "text edit", "code_edit": "code edit", "chat": "chat",
    "sums": "sums", "translation": "translation", "retrieval": "retrieval", "open": "little to copy",
    **SAMPLES, FIRST: "first turn", SECOND: "second turn", ALL_TASKS: "all", "": "all prompts",
    **{name: template.title for name, template in templates().items()},
}  # fmt: skip

# the categories of published benchmarks, by the names that their tables have
MT_BENCH = {
    "writing": "Writing", "roleplay": "Roleplay", "reasoning": "Reasoning", "math": "Math", "coding": "Coding",
    "extraction": "Extraction", "stem": "STEM", "humanities": "Humanities",
}  # fmt: skip
SPEC_BENCH = {
    "translation": "Trans.", "summarization": "Summ.", "qa": "QA", "math_reasoning": "Math", "rag": "RAG"
}  # fmt: skip
SPEED_BENCH = {
    **{name: title for name, title in MT_BENCH.items() if name != "extraction"}, "multilingual": "Multilingual",
    "qa": "QA", "rag": "RAG", "summarization": "Summ.",
}  # fmt: skip
TASK_TITLES = {"gsm8k": "GSM8K", "humaneval": "HumanEval", "mbpp": "MBPP"}


def benchmark_columns(categories: Iterable[str]) -> dict[str, str]:
    """The column of each category in tables of the field's form.

    MT-Bench's eight categories stand by themselves where they are all there is, as do SPEED-Bench's eleven; beside any
    other category they are one column, MT (Spec-Bench: MT, Trans., Summ., QA, Math, RAG; EAGLE: MT, HumanEval, GSM8K).

    >>> benchmark_columns(["writing", "coding", "translation", "math_reasoning"])
    {'writing': 'MT', 'coding': 'MT', 'translation': 'Trans.', 'math_reasoning': 'Math'}
    >>> benchmark_columns(["writing", "math"]), benchmark_columns(["math", "rag", "multilingual"])
    ({'writing': 'Writing', 'math': 'Math'}, {'math': 'Math', 'rag': 'RAG', 'multilingual': 'Multilingual'})
    """
    task_names = list(dict.fromkeys(categories))
    is_whole = all(name in MT_BENCH for name in task_names) or all(name in SPEED_BENCH for name in task_names)
    mt = MT_BENCH if is_whole else dict.fromkeys(MT_BENCH, "MT")
    titles = {**NAMES, **SPEED_BENCH, **SPEC_BENCH, **TASK_TITLES, **mt}
    return {name: str(titles.get(name, name)) for name in task_names}


def is_set(name: str) -> bool:
    """True for the name of a prompt set, False for a file's."""
    kind, colon, _ = name.partition(":")
    samples = all(part.strip() in SAMPLES for part in name.split(","))
    return samples or (kind in SETS and (bool(colon) or not Path(name).is_file()))


def records(name: str, count: int, *, toy: bool = False) -> list[PromptRecord]:
    """The prompts of a set, ``count`` of them, the tasks in turn; ``toy``: the bundled target's own examples.

    Raises UserError naming what there is.
    """
    if count < 1:
        raise UserError(f"{count} prompts are asked for; at least one is needed")
    kind, _, task_list = name.partition(":")
    path = Path(name).expanduser()
    if not is_set(name):
        if not path.exists():
            raise UserError(f"{name} is no prompt file and no prompt set: the sets are {', '.join(SETS)}")
        return read_file(path, count)
    if kind.split(",")[0].strip() in SAMPLES:
        files = [sample_file(part.strip()) for part in name.split(",")]
        return _in_turn([by_category(read_prompts(file)) for file in files])[:count]
    example_records = [example.record for example in examples(toy)] if kind == "examples" else []
    known_tasks = tuple(dict.fromkeys(record.category for record in example_records)) or DEMO
    if kind == "templates":
        known_tasks = tuple(templates())
    tasks = tuple(task.strip() for task in task_list.split(",") if task.strip()) or known_tasks
    for task in tasks:
        if task not in known_tasks:
            raise UserError(f"there is no task {task!r} in {kind}: choose of {', '.join(known_tasks)}")
    if kind == "turns":
        return _turns(count)
    if kind == "quotes":
        return quoted_records(None, count)
    task_share = -(-count // len(tasks))
    if kind == "templates":
        return _in_turn([fill_template(task, task_share, _held_out) for task in tasks])[:count]
    if kind == "examples":
        return _in_turn([[record for record in example_records if record.category == task] for task in tasks])[:count]
    return _in_turn([_held_out(task, task_share) for task in tasks])[:count]


def read_file(path: Path, count: int) -> list[PromptRecord]:
    """The prompts of a file, of which rows in QuoteSum's form have their known quotes. Raises UserError."""
    return quoted_records(path, count) if is_quotesum(path) else read_prompts(path, count)


def sent_records(name: str, text: str, count: int) -> list[PromptRecord]:
    """The prompts of a file that a page sent as text. Raises UserError, naming the file as it was sent."""
    if len(text) > MAX_FILE:
        raise UserError(f"this prompt file has {len(text):,} characters and at most {MAX_FILE:,} are read: shorten it")
    with tempfile.TemporaryDirectory(prefix="specviz-") as folder:
        path = Path(folder) / short_name(name)
        write_bytes(path, text.encode())
        try:
            return read_file(path, count)
        except UserError as problem:
            raise UserError(str(problem).replace(f"{folder}/", "")) from None


def short_name(name: str) -> str:
    """A file's name without its folders."""
    return Path(name.replace("\\", "/")).name[-60:].lstrip(".") or "prompts.jsonl"  # 60: a file's name has 255 bytes


def _in_turn(lists: Sequence[Sequence[PromptRecord]]) -> list[PromptRecord]:
    """One of each list, then the next of each.

    >>> [r.id for r in _in_turn([[PromptRecord("a"), PromptRecord("b")], [PromptRecord("c")]])]
    ['a', 'c', 'b']
    """
    longest = max((len(group) for group in lists), default=0)
    return [group[i] for i in range(longest) for group in lists if i < len(group)]


def _held_out(task: str, count: int) -> list[PromptRecord]:
    from decoders.prompt.tasks import stream

    task_records = []
    for number, example in enumerate(islice(stream("held_out", SEED, mixture={task: 1.0}), count), 1):  # pyright: ignore
        if example.history:
            text: dict[str, Any] = {"messages": tuple((m["role"], m["content"]) for m in example.messages[:-1])}
        else:
            text = {name: getattr(example, name) for name in ("instruction", "context", "question")}
        task_records.append(PromptRecord(f"{task}-{number}", task, reference=example.reference, **text))
    return task_records


def _turns(count: int) -> list[PromptRecord]:
    """Chats, each as two prompts: its first turn alone, and its second turn after the first answer."""
    turns = []
    for record in _held_out("chat", -(-count // 2)):
        first, answer = record.messages[0], record.messages[1][1]
        turns.append(replace(record, id=f"{record.id}, first", category=FIRST, messages=(first,), reference=answer))
        turns.append(replace(record, id=f"{record.id}, second", category=SECOND))
    return turns[:count]


def cases(tokenizer: Any, records: Sequence[PromptRecord]) -> list[Case]:
    """Their tokens, with the references."""
    case_list = []
    for record in records:
        prompt = record.prompt(tokenizer)
        if record.reference and not prompt.reference:
            prompt = replace(prompt, reference=record.reference)
        case_list.append(Case(record.id, record.category, prompt, getattr(record, "gold", None)))
    return case_list


def of_trace(trace: Trace) -> Case:
    """The prompt of a recorded run, under its title."""
    return Case(str(trace.run.get("title") or "recorded run"), "", codec.of_trace(trace))


def check_tokens(target: Any, trace: Trace) -> None:
    """Raise UserError unless every token of a trace is one of the target's, and the same bytes to it.

    A trace may come from anybody, and an id that a model does not have ends a GPU's work for good.
    """
    tables, target_pieces = trace.tables, getattr(target, "pieces", None)
    token_ids, size = {*tables["tokens"]["id"], *tables["pool"]["id"]}, target.info.get("vocab")
    pieces = zip(tables["pieces"]["id"], tables["pieces"]["hex"], strict=True)
    fits = not size or all(0 <= token < size for token in token_ids)
    if not fits or (
        target_pieces is not None
        and any(target_pieces.of(token)[0].hex() != h for token, h in pieces if token in token_ids)
    ):
        name = trace.run.get("model", {}).get("name") or "another model"
        raise UserError(
            f"this run was made with the tokens of {name} and {target.name} is loaded: "
            "start the app with --model for that one"
        )
