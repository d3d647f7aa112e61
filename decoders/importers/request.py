"""One request as a source states it: what it does not tell stays None, or empty."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

MOST_REQUESTS = 200  # of a file that are shown
MOST_ROWS = 300_000  # of all requests that are shown: tokens, their first choices, drafted tokens
MOST_TOKENS = 1_000_000  # of a file that are read
PROMPT_STEP, NO_DRAFT = "the forward that read the prompt wrote this token", "the drafter had none"
WORD = re.compile(r"\s*\S+|\s+")  # what stands for a token where a text is not split into tokens

Choice = tuple[int | None, str | bytes | None, float | None]  # id, text, probability


class ImportFault(ValueError):
    """The reason why a file cannot be imported, in one sentence."""


class NotALog(ImportFault):
    """No importer knows anything in the file."""


def check_tokens(count: int) -> None:
    """Raise ImportFault for more tokens than are read of a file."""
    if count > MOST_TOKENS:
        raise ImportFault(f"the file tells of more than {MOST_TOKENS:,} tokens, and no more are read: cut it")


def words(text: str) -> list[str]:
    """A text, split where its tokens are not told. Raises ImportFault as ``check_tokens`` does.

    >>> words("the old  lamp ")
    ['the', ' old', '  lamp', ' ']
    """
    parts = [match[0] for match in islice(WORD.finditer(text), MOST_TOKENS + 1)]
    check_tokens(len(parts))
    return parts


@dataclass(slots=True)
class Token:
    """An output token as far as it is known: its id, its text (bytes where it is part of a character), the target's
    probability of it and its first choices there.
    """

    id: int | None = None
    text: str | bytes | None = None
    prob: float | None = None
    top: Sequence[Choice] = ()


@dataclass(slots=True)
class ServerStep:
    """A step as a server tells it. ``accepted`` and ``drafted`` are None where they are not told; ``accepted`` is above
    ``emitted`` where the answer ended inside the accepted draft. ``draft`` has the drafter's first choices per
    position, the drafted one first; ``ms`` is the time since the step before, as far as it is told. Recorders know
    more: the target's probability and rank of every drafted token (``judged``), after temperature and the like
    (``served``), its first choices in every row (``tops``), times, and the requests of the forward (``batch``);
    ``confidence``: the drafter's own guess, per drafted token, that it is accepted. A draft is a chain.
    """

    emitted: int
    accepted: int | None = None
    drafted: int | None = None
    draft: Sequence[Sequence[Choice]] = ()
    ms: float | None = None
    reason: str = ""
    draft_choices: Sequence[tuple[float, int]] = ()
    served: Sequence[float] | None = None
    tops: Sequence[Sequence[Choice]] = ()
    draft_ms: float | None = None
    verify_ms: float | None = None
    batch: int = 0
    confidence: Sequence[float | None] | None = None


@dataclass(slots=True)
class Request:
    """One request. ``steps`` is None where nothing tells which tokens came together; ``said`` holds the server's own
    numbers, by the names it gives them; ``totals`` those that the steps are compared with.
    """

    key: str = ""
    model: str = ""
    prompt: str | None = None
    prompt_ids: Sequence[int] = ()
    tokens: list[Token] = field(default_factory=list)
    steps: list[ServerStep] | None = None
    server_fields: dict[str, Any] = field(default_factory=dict)
    totals: dict[str, Any] = field(default_factory=dict)  # the server's own: tokens, steps, drafts, drafted, accepted
    stop: str = ""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # where what was read may not be what the server did
    prefill_ms: float | None = None
    decode_ms: float | None = None
    untimed_tokens: int = 0  # written before the clock of ``decode_ms`` starts: 1 where it starts with the first token
    text: str = ""  # of the answer, where it is told apart from its tokens
    is_counted: bool = True  # False where a text may stand for several tokens

    @property
    def rows(self) -> int:
        """About how long its trace is: tokens, their first choices, drafted tokens and the drafter's choices."""
        drafted = sum((step.drafted or 0) + sum(map(len, step.draft)) for step in self.steps or ())
        prompt = len(self.prompt_ids) or len((self.prompt or "").split())
        return prompt + len(self.tokens) + sum(len(token.top) for token in self.tokens) + drafted
