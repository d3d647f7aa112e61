"""Examples of task generators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from decoders.prompt.message import Message, turns, user_message

Family = Literal["summary", "quote", "text_edit", "code_edit", "chat", "sums"]
FAMILIES: tuple[Family, ...] = get_args(Family)


@dataclass(frozen=True)
class QuoteSpan:
    """Place of the gold answer: characters `start` to `end` of passage number `passage` (from 0).

    `passages[span.passage][span.start : span.end]` is the answer.
    """

    passage: int
    start: int
    end: int


@dataclass(frozen=True)
class TaskExample:
    """One conversation whose last message is the assistant's gold answer.

    `instruction`, `context` and `question` are the segments of the last user message:

    >>> e = TaskExample("quote", "Quote the answer.", ("Ada left.", "Bo came."), "Who came?", "Bo [2]")
    >>> print(e.messages[-2]["content"])
    Quote the answer.
    <BLANKLINE>
    [1] Ada left.
    [2] Bo came.
    <BLANKLINE>
    Who came?
    """

    family: Family
    instruction: str
    context: tuple[str, ...]
    question: str
    reference: str
    history: tuple[Message, ...] = ()
    span: QuoteSpan | None = None

    @property
    def messages(self) -> list[Message]:
        """All turns, oldest first; the last one is the gold answer."""
        return [
            *self.history,
            *turns(user_message(self.instruction, self.context, self.question), self.reference),
        ]


def fence(code: str, language: str = "python") -> str:
    """`code` as a Markdown block."""
    return f"```{language}\n{code}\n```"
