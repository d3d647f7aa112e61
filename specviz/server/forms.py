"""A form: the prompt and a run's settings, checked."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from decoders.draft.params import controls, make_params, param
from decoders.draft.settings import length_param
from decoders.errors import UserError
from specviz.views.examples import checked_turns, marked_turns, passages
from specviz.words import numeric, sentence

from .bodies import Body, SentFile, needs

if TYPE_CHECKING:
    from decoders import Prompt, Target
    from decoders.prompt.grammar import Grammar
    from decoders.trace.trace import Trace

MODES = {"segments": "Segments", "chat": "Chat", "text": "Plain text"}
MAX_PROMPT = 400_000  # characters
MAX_POOL = 4 << 20  # bytes
MAX_REFERENCE = 20_000  # characters

EMPTY = "The prompt is empty: type something, or choose an example."


@dataclass(frozen=True)
class RunSettings:
    """Settings that every run has, whatever its method."""

    max_new_tokens: int = param(
        256,
        "New tokens",
        "The run stops after this many tokens, or at the end of the answer.",
        low=1,
        high=4096,
        step=1,
    )
    temperature: float = param(
        0.0,
        "Temperature",
        "0 takes the likeliest token every time; above 0 tokens are drawn.",
        low=0.0,
        high=2.0,
        step=0.05,
    )
    top_k: int = param(0, "Top k", "Draw among the k likeliest tokens only; 0 takes all.", low=0, high=1000, step=1)
    top_p: float = param(
        1.0, "Top p", "Draw among the likeliest tokens that add up to this probability.", low=0.05, high=1.0, step=0.05
    )
    seed: int = param(0, "Seed", "The same seed gives the same draws.", low=0, high=2**31 - 1, step=1)
    length: str = length_param()
    processors: bool = param(
        True,
        "The model's own processors",
        "Applies what the model's generation config asks for, as generate() does.",
    )
    compare: bool = param(
        False,
        "Compare with plain decoding",
        "Runs plain decoding on the same prompt afterwards: its text beside the output, and the speedup.",
    )


class Refusal(UserError):
    """Bad input: one sentence, and the place (prompt, grammar, pool, method, model, queue, file) it belongs to.

    ``retry_s`` is 0, or after how many seconds the same may be asked for again.
    """

    def __init__(self, place: str, text: str, retry_s: int = 0) -> None:
        super().__init__(text)
        self.place, self.retry_s = place, retry_s


class Missing(UserError):
    """Error for something that was asked for and is not there, in one sentence."""


@dataclass(frozen=True, slots=True)
class PromptForm:
    """A prompt as it is typed. ``mode`` is a key of ``MODES``; the fields of the other modes are ignored.

    ``reference`` is the reference answer, to measure quality by, and ``reference_of`` whose it is. ``pool_text`` is
    another text to draft from, for methods that take one, and ``pool_name`` what it is called. ``dialogue``: a
    chat's (role, content), where they are not marked in ``text``. ``recorded`` is the prompt of a recorded run, taken
    token by token in place of all that. ``grammar`` is the form of the answer.
    """

    mode: str = "segments"
    instruction: str = ""
    context: str = ""
    question: str = ""
    text: str = ""
    reference: str = ""
    pool_text: str = ""
    pool_name: str = ""
    reference_of: str = ""
    dialogue: tuple[tuple[str, str], ...] = ()
    recorded: Prompt | None = None
    grammar: Grammar | None = None

    @classmethod
    def of_trace(cls, trace: Trace) -> PromptForm:
        """A recorded run's prompt."""
        from decoders.prompt.codec import of_trace

        return cls("text", text=trace.text(trace.prompt_ids), recorded=of_trace(trace))

    @property
    def typed_text(self) -> str:
        """The text typed in the form's mode."""
        if self.mode == "chat" and self.dialogue:
            return "".join(content for _, content in self.dialogue)
        return (self.instruction + self.context + self.question) if self.mode == "segments" else self.text

    def turns(self) -> list[dict[str, str]]:
        """A chat's messages. Raises ValueError where they make no sense."""
        return checked_turns(self._typed_turns())

    def to_json(self) -> dict[str, Any]:
        """The form as the browser has it; of a chat its messages."""
        names = ("mode", "instruction", "context", "question", "text", "reference")
        fields = {name: getattr(self, name) for name in names}
        if self.grammar is not None:
            fields["grammar"] = sent_grammar(self.grammar)
        if self.mode != "chat":
            return {**fields, "messages": []}
        return {**fields, "text": "", "messages": self._typed_turns()}

    def _typed_turns(self) -> list[dict[str, str]]:
        messages = [{"role": role, "content": content} for role, content in self.dialogue]
        return messages or marked_turns(self.text)

    @property
    def key(self) -> str:
        """The same for the same prompt: mode, text and pool."""
        texts = (self.instruction, self.context, self.question) if self.mode == "segments" else (self.text,)
        if self.mode == "chat":
            texts = tuple(text for message in self._typed_turns() for text in message.values())
        grammar = () if self.grammar is None else (self.grammar.kind, self.grammar.text)
        parts = (self.mode, *texts, self.pool_text, *grammar)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def title(self) -> str:
        """The first words, for lists of runs."""
        source = (self.instruction or self.question or self.context) if self.mode == "segments" else self.text
        if self.mode == "chat":
            try:
                source = self.turns()[-1]["content"]
            except (ValueError, IndexError):
                source = self.text
        words = " ".join(source.split())
        return words if len(words) <= 70 else words[:69].rsplit(" ", 1)[0] + " …"

    def whole(self, tokenizer: Any, *, pooled: bool) -> Prompt:
        """``prompt`` with its reference and, for a method that takes one, its pool."""
        from decoders.prompt.prompt import Pool

        if self.recorded is not None:
            return self.recorded
        if len(self.reference) > MAX_REFERENCE:
            raise Refusal(
                "prompt",
                f"The reference has {len(self.reference):,} characters and at most {MAX_REFERENCE:,} are taken: "
                "shorten it.",
            )
        hoped_for = {"reference": self.reference.strip(), "reference_of": self.reference_of, "grammar": self.grammar}
        prompt = dataclasses.replace(self.prompt(tokenizer), **hoped_for)
        if not pooled or not self.pool_name:
            return prompt
        if not self.pool_text.strip():
            raise Refusal("pool", f"The pool file {self.pool_name} holds no text: give one with at least two words.")
        try:
            pool = Pool.from_text(tokenizer, self.pool_text, self.pool_name)
        except ValueError as problem:
            raise Refusal("pool", sentence(problem)) from None
        return dataclasses.replace(prompt, pool=pool)

    def prompt(self, tokenizer: Any) -> Prompt:
        """The tokens. Raises Refusal where nothing was typed or the turns make no sense."""
        from decoders import Prompt

        self._check()
        try:
            if self.mode == "segments":
                parts = passages(self.context)
                return Prompt.from_segments(
                    tokenizer, instruction=self.instruction, context=parts, question=self.question
                )
            if self.mode == "chat":
                return Prompt.from_messages(tokenizer, self.turns())
            return Prompt.from_text(tokenizer, self.text)
        except ValueError as problem:
            raise Refusal("prompt", sentence(problem)) from None

    def messages(self) -> str | list[dict[str, str]]:
        """The prompt as another server takes it: chat messages, or the plain text. Raises Refusal as ``prompt``."""
        from decoders.prompt.prompt import segment_parts

        self._check()
        try:
            if self.mode == "segments":
                parts = segment_parts(self.instruction, passages(self.context), self.question)
                return [{"role": "user", "content": "".join(text for text, _, _ in parts)}]
            return self.turns() if self.mode == "chat" else self.text
        except ValueError as problem:
            raise Refusal("prompt", sentence(problem)) from None

    def _check(self) -> None:
        if self.mode not in MODES:
            raise Refusal("prompt", f"The prompt's form {self.mode!r} is unknown: use one of {', '.join(MODES)}.")
        text = self.typed_text
        if len(text) > MAX_PROMPT:
            raise Refusal(
                "prompt", f"The prompt has {len(text):,} characters and at most {MAX_PROMPT:,} are taken: shorten it."
            )
        if not text.strip():
            raise Refusal("prompt", EMPTY)


class SentGrammar(Body):
    """The form of an answer as a page sends it; ``filter``: drafted tokens that it forbids are not verified."""

    kind: Literal["json schema", "regex"]
    text: str
    filter: bool = False

    def grammar(self) -> Grammar:
        """The grammar. Raises Refusal for a text that is none."""
        from decoders.prompt.grammar import FILTER, MARK, Grammar

        try:
            return Grammar(self.kind, self.text, FILTER if self.filter else MARK)
        except UserError as problem:
            raise Refusal("grammar", sentence(problem)) from None


def sent_grammar(grammar: Grammar) -> dict[str, Any]:
    """A grammar as the page has it."""
    from decoders.prompt.grammar import FILTER

    return {"kind": grammar.kind, "text": grammar.text, "filter": grammar.drafts == FILTER}


def check_grammar(prompt: Prompt, target: Target) -> None:
    """Raises Refusal for a prompt's grammar that the target cannot keep to."""
    from decoders.prompt.grammar import Matcher

    if prompt.grammar is None:
        return
    try:
        Matcher(prompt.grammar, target.tokenizer, target.info["vocab"], target.stop_ids, len(prompt.tokens))
    except UserError as problem:
        raise Refusal("grammar", sentence(problem)) from None


class Message(Body):
    """A message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class TypedPrompt(Body):
    """A prompt as a page sends it: ``PromptForm``'s fields, the title of its run, the pool as a file, the grammar."""

    title: Annotated[str, Field(max_length=200)] = ""
    mode: str = "segments"
    instruction: str = ""
    context: str = ""
    question: str = ""
    text: str = ""
    messages: Annotated[
        list[Message],
        Field(max_length=1000),
        needs("messages are a list of {“role”: “system”, “user” or “assistant”, “content”: a text}"),
    ] = Field(default=[])
    reference: str = ""
    reference_of: Literal["", "your own", "the example's", "the run's"] = ""
    pool: SentFile | None = None
    grammar: SentGrammar | None = None

    def form(self) -> PromptForm:
        """The prompt's form. Raises Refusal for a pool that holds no text."""
        if self.pool is not None and not self.pool.text.strip():
            raise Refusal("pool", f"The pool file {self.pool.name} holds no text: give one with at least two words.")
        pool = {} if self.pool is None else {"pool_text": self.pool.text, "pool_name": self.pool.name}
        names = ("mode", "instruction", "context", "question", "text", "reference", "reference_of")
        grammar = None if self.grammar is None else self.grammar.grammar()
        dialogue = tuple((message.role, message.content) for message in self.messages)
        return PromptForm(**{name: getattr(self, name) for name in names}, dialogue=dialogue, grammar=grammar, **pool)


def checked_params(kind: type, values: Mapping[str, Any]) -> Any:
    """An instance of a params class from what was sent. Raises Refusal, naming the control as the page does."""
    if not isinstance(values, Mapping):
        raise Refusal("method", "Parameters are given as names and values.")
    by_name = {c.name: c for c in controls(kind)}
    for name, value in values.items():
        if name in by_name and by_name[name].kind == "str" and value not in ("", None):
            raise Refusal("method", f"{by_name[name].label} names a file: it can be set in the commands only (--set).")
        if name not in by_name:
            known_names = ", ".join(by_name) or "none"
            raise Refusal("method", f"There is no parameter {str(name)[:40]!r} here: there is {known_names}.")
        if not isinstance(value, str | int | float | bool | None) or len(str(value)) > 200:
            raise Refusal("method", f"{by_name[name].label} needs {by_name[name].range_in_words()}.")
        try:
            by_name[name].check(value)
        except (ValueError, OverflowError):
            typed_value = repr(value) if isinstance(value, str) and not numeric(value) else value
            value_text = "nothing" if value in ("", None) else typed_value
            requirement = f"{by_name[name].label} needs {by_name[name].range_in_words()}"
            raise Refusal("method", f"{requirement}; given was {value_text}.") from None
    return make_params(kind, values)


def too_long(count: int, limit: int) -> str:
    over = count - limit + 1
    return f"The prompt has {count:,} tokens and the model's context holds {limit:,}: shorten it by at least {over:,}."
