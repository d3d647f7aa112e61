"""Conversations whose answers are made by rule, over the same passages: edits, copies, quotes, continuations.

They cost no generation, so there can be many. What a part learns of them is the target's own distributions along these
answers (``--soft-labels``, or prompt tokens' labels), not the answers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from .passages import CODE, PROSE, Passage
from .prompts import Passages, wordings

Rule = Callable[[random.Random, Passage], tuple[str, str] | None]  # what the user says, and the answer


def draw_reference(random: random.Random, passages: Passages) -> tuple[str, str, str]:
    """What the user says, the answer, and the passage's origin."""
    while True:
        passage = passages.draw(random)
        made = random.choice(RULES[passage.kind])(random, passage)
        if made is not None and made[1].strip():
            return *made, passage.origin


def _replaced(random: random.Random, passage: Passage) -> tuple[str, str] | None:
    words = sorted({word for word in re.findall(r"[A-Za-z][a-z]{3,}", passage.text)})
    if not words:
        return None
    old, new = random.choice(words), random.choice(wordings()["words"]["names"])
    answer = re.sub(rf"\b{old}\b", new, passage.text)
    asked = random.choice(
        [
            f'Replace "{old}" with "{new}" everywhere in this text and change nothing else.\n\n{passage.text}',
            f'{passage.text}\n\nRewrite the text above with "{new}" instead of "{old}".',
        ]
    )
    return asked, answer


def _copied(random: random.Random, passage: Passage) -> tuple[str, str]:
    asked = random.choice(["Copy this text word for word:", "Repeat the following text:", "Write the same text again."])
    return f"{asked}\n\n{passage.text}", passage.text


def _sentences(passage: Passage) -> list[str]:
    return [one for one in re.split(r"(?<=[.!?])\s+", passage.text) if one.strip()]


def _without_first(random: random.Random, passage: Passage) -> tuple[str, str]:
    rest = passage.text[len(_sentences(passage)[0]) :].strip()
    return f"Remove the first sentence of this text and return the rest unchanged.\n\n{passage.text}", rest


def _lines(random: random.Random, passage: Passage) -> tuple[str, str]:
    mark = random.choice(["", "- "])
    asked = "Put every sentence of this text on a line of its own"
    answer = "\n".join(mark + one for one in _sentences(passage))
    return f"{asked}{', with a dash' if mark else ''}:\n\n{passage.text}", answer


def _quoted(random: random.Random, passage: Passage) -> tuple[str, str] | None:
    sentence = random.choice(_sentences(passage))
    words = re.findall(r"[A-Za-z]{5,}", sentence)
    if not words:
        return None
    return f'{passage.text}\n\nWhich sentence of the text mentions "{random.choice(words)}"? Quote it.', f'"{sentence}"'


def _continued(random: random.Random, passage: Passage) -> tuple[str, str]:
    place = passage.text.find(" ", len(passage.text) // 3)
    return f"Continue this text:\n\n{passage.text[:place]}", passage.text[place:].strip()


def _renamed(random: random.Random, passage: Passage) -> tuple[str, str] | None:
    names = sorted(set(re.findall(r"\b([a-z_][a-z_0-9]+) =|[(,] ?([a-z_][a-z_0-9]+)[,)=]", passage.text)))
    names = sorted({first or second for first, second in names} - {"self", "cls", "None", "True", "False"})
    if not names:
        return None
    old, new = random.choice(names), random.choice(wordings()["words"]["renamed"])
    answer = re.sub(rf"\b{old}\b", new, passage.text)
    asked = f"Rename the variable `{old}` to `{new}` in this code:\n\n```python\n{passage.text}\n```"
    return asked, f"```python\n{answer}\n```"


def _copied_code(random: random.Random, passage: Passage) -> tuple[str, str]:
    code = f"```python\n{passage.text}\n```"
    return f"Repeat this code exactly:\n\n{code}", code


def _uncommented(random: random.Random, passage: Passage) -> tuple[str, str]:
    code = "\n".join(line for line in passage.text.splitlines() if not line.lstrip().startswith("#"))
    asked = "Write this code again without its comments"
    return f"{asked}:\n\n```python\n{passage.text}\n```", f"```python\n{code}\n```"


def _completed(random: random.Random, passage: Passage) -> tuple[str, str]:
    lines = passage.text.splitlines()
    start = "\n".join(lines[: max(2, len(lines) // 2)])
    return f"Complete this function:\n\n```python\n{start}\n```", f"```python\n{passage.text}\n```"


RULES: dict[str, list[Rule]] = {
    PROSE: [_replaced, _replaced, _copied, _without_first, _lines, _quoted, _continued, _continued],
    CODE: [_renamed, _renamed, _copied_code, _uncommented, _completed, _completed],
}
