"""Edits of Python code."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from .example import Example, fence
from .prose import lead_in
from .snippets import Snippet, indent, javascript, rename, snippet, with_comments
from .words import Cast

# An edit takes (rng, cast, code, snippet in the code) and gives (wish, code before, code after).
Edit = tuple[str, str, str]


def _quoted(rng: random.Random, name: str) -> str:
    return f"`{name}`" if rng.random() < 0.6 else name


def rename_variable(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit:
    old = rng.choice(part.names)
    new = cast.variable()
    a, b = (f"`{old}`", f"`{new}`") if rng.random() < 0.6 else (old, new)
    wish = rng.choice(
        (f"Rename the variable {a} to {b}.", f"Rename {a} to {b}.", f"Call the variable {b} instead of {a}.")
    )
    return wish, code, rename(code, old, new)


def rename_function(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit:
    new = cast.function()
    a, b = (f"`{part.function}`", f"`{new}`") if rng.random() < 0.6 else (part.function, new)
    wish = rng.choice((f"Rename the function {a} to {b}.", f"The function {a} should be called {b}."))
    return wish, code, rename(code, part.function, new)


def change_constant(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit | None:
    if not part.constant:
        return None
    new = str(rng.randint(100, 999))
    wish = rng.choice(
        (
            f"Use {new} instead of {part.constant}.",
            f"Replace the number {part.constant} by {new}.",
            f"Fix the bug: {part.constant} must be {new}.",
        )
    )
    return wish, code, re.sub(rf"\b{part.constant}\b", new, code)


def change_comparison(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit | None:
    if not part.comparison:
        return None
    new = rng.choice([c for c in ("<", ">", "<=", ">=") if c != part.comparison])
    wish = rng.choice(
        (
            f"Fix the bug: `{part.comparison}` must be `{new}`.",
            f"The comparison is wrong: use `{new}` instead of `{part.comparison}`.",
        )
    )
    return wish, code, code.replace(f" {part.comparison} ", f" {new} ")


def change_operator(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit | None:
    if not part.operator:
        return None
    new = rng.choice([o for o in ("+", "-", "*") if o != part.operator])
    wish = rng.choice(
        (f"Fix the bug: `{part.operator}` must be `{new}`.", f"Replace every `{part.operator}` by `{new}`.")
    )
    return wish, code, code.replace(f" {part.operator} ", f" {new} ")


def fix_syntax(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit:
    lines = code.split("\n")
    if rng.random() < 0.5:
        places = [i for i, line in enumerate(lines) if line.endswith(":")]
        broken = set(rng.sample(places, min(len(places), rng.choice((1, 1, 2)))))
        before = "\n".join(line[:-1] if i in broken else line for i, line in enumerate(lines))
    else:
        good, bad = rng.choice(
            (
                ("return ", "retrun "),
                ("return ", "retun "),
                ("for ", "fro "),
                (" in ", " on "),
                ("if ", "fi "),
            )
        )
        before = code.replace(good, bad, 1)
    wish = rng.choice(("Fix the syntax error.", "This does not run. Correct it.", "Find and fix the mistake."))
    return wish, before, code


def print_before_return(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit:
    out: list[str] = []
    for line in code.split("\n"):
        if line.strip().startswith("return "):
            out.append(f"{indent(line)}print({line.strip()[7:]})")
        out.append(line)
    wish = rng.choice(("Add a print statement before each return.", "Print every value just before it is returned."))
    return wish, code, "\n".join(out)


def add_docstring(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit:
    text = rng.choice(
        (
            f"Work on the {part.names[0]}.",
            f"Return the {part.names[-1]}.",
            f"Needs the {part.names[0]} of {cast.town()}.",
            f"Written by {cast.person()}.",
            f"See page {rng.randint(2, 99)} of the manual.",
        )
    )
    out: list[str] = []
    for line in code.split("\n"):
        out.append(line)
        if line.strip().startswith(f"def {part.function}("):
            out.append(f'{indent(line)}    """{text}"""')
    wish = rng.choice(
        (
            f'Add the docstring "{text}" to {_quoted(rng, part.function)}.',
            f'Give {_quoted(rng, part.function)} the docstring "{text}"',
        )
    )
    return wish, code, "\n".join(out)


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def add_type_hints(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit | None:
    if not part.parameters:
        return None
    told = " and ".join(f"{_quoted(rng, name)} is {_article(kind)}" for name, kind in part.parameters)
    hinted = ", ".join(f"{name}: {kind}" for name, kind in part.parameters)
    plain = ", ".join(name for name, _ in part.parameters)
    return (
        f"Add type hints: {told}.",
        code,
        code.replace(f"{part.function}({plain})", f"{part.function}({hinted})").replace(
            f"{part.function}(self, {plain})", f"{part.function}(self, {hinted})"
        ),
    )


def to_javascript(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit:
    wish = rng.choice(
        (
            "Translate the code to JavaScript.",
            "Rewrite this in JavaScript.",
            "Convert the function to JavaScript.",
        )
    )
    return wish, code, javascript(code)


def remove_comments(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit:
    return rng.choice(("Remove all comments.", "Delete the comments.")), with_comments(rng, code), code


def remove_prints(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit | None:
    after = "\n".join(line for line in code.split("\n") if not line.strip().startswith("print("))
    if after == code:
        return None
    return rng.choice(("Remove the print statements.", "Delete every print.")), code, after


def log_instead_of_print(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit | None:
    if "print(" not in code:
        return None
    return (
        rng.choice(("Use logger.info instead of print.", "Replace print by logger.info.")),
        code,
        code.replace("print(", "logger.info("),
    )


def add_check(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit | None:
    if not part.parameters:
        return None
    name = rng.choice(part.parameters)[0]
    out: list[str] = []
    for line in code.split("\n"):
        out.append(line)
        if line.strip().startswith(f"def {part.function}("):
            out.append(f"{indent(line)}    if {name} is None:")
            out.append(f'{indent(line)}        raise ValueError("{name} is missing")')
    wish = rng.choice(
        (
            f"Raise a ValueError if {_quoted(rng, name)} is None.",
            f"Check that {_quoted(rng, name)} is not None.",
        )
    )
    return wish, code, "\n".join(out)


def add_default(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit | None:
    if not part.parameters:
        return None
    name, kind = part.parameters[-1]
    value = "None" if kind == "list" else str(rng.randint(100, 999))
    pattern = rf"(def {part.function}\(.*\b{name})\)"
    wish = rng.choice(
        (
            f"Give {_quoted(rng, name)} the default {value}.",
            f"Let {value} be the default of {_quoted(rng, name)}.",
        )
    )
    return wish, code, re.sub(pattern, rf"\1={value})", code)


def shorten_updates(rng: random.Random, cast: Cast, code: str, part: Snippet) -> Edit | None:
    after = re.sub(r"([\w.]+) = \1 ([-+*]) ", r"\1 \2= ", code)
    if after == code:
        return None
    return (
        rng.choice(("Use `+=` and the like where possible.", "Write `x = x + y` as `x += y` everywhere.")),
        code,
        after,
    )


EDITS: tuple[tuple[Callable[..., Edit | None], int], ...] = (
    (rename_variable, 8),
    (rename_function, 4),
    (change_constant, 3),
    (change_comparison, 2),
    (change_operator, 2),
    (fix_syntax, 3),
    (print_before_return, 2),
    (add_docstring, 3),
    (add_type_hints, 2),
    (to_javascript, 4),
    (remove_comments, 2),
    (remove_prints, 1),
    (log_instead_of_print, 1),
    (add_check, 2),
    (add_default, 2),
    (shorten_updates, 2),
)


def code_edit(rng: random.Random) -> Example:
    """One or two functions and one change to make to them."""
    while True:
        edit = rng.choices([e for e, _ in EDITS], [w for _, w in EDITS])[0]
        cast = Cast(rng)
        parts = [snippet(cast) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        code = "\n\n".join(p.code for p in parts)
        made = edit(rng, cast, code, rng.choice(parts))
        if made is None or made[1] == made[2]:
            continue
        wish, before, after = made
        language = "javascript" if edit is to_javascript else "python"
        return Example("code_edit", lead_in(rng, wish), (fence(before),), "", fence(after, language))
