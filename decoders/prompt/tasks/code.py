"""Edits of Python code."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from .example import TaskExample, fence
from .facts import with_article
from .prose import Edit, swap_word
from .snippets import Snippet, javascript, snippet, with_comments
from .words import Cast

# An edit takes (cast, code, snippet in the code); None where this snippet has nothing to edit.
Editor = Callable[[Cast, str, Snippet], Edit | None]


def _names(cast: Cast, *names: str) -> list[str]:
    """The names as a wish writes them: all in backticks, or none."""
    mark = "`" if cast.chance(0.6) else ""
    return [f"{mark}{name}{mark}" for name in names]


def _rename(cast: Cast, code: str, wish: str, old: str, new: str) -> Edit:
    old_phrase, new_phrase = _names(cast, old, new)
    return cast.say(wish, old=old_phrase, new=new_phrase), code, swap_word(code, old, new)


def rename_variable(cast: Cast, code: str, part: Snippet) -> Edit:
    return _rename(cast, code, "rename_variable", cast.rng.choice(part.names), cast.variable())


def rename_function(cast: Cast, code: str, part: Snippet) -> Edit:
    return _rename(cast, code, "rename_function", part.function, cast.function())


def change_constant(cast: Cast, code: str, part: Snippet) -> Edit | None:
    if not part.constant:
        return None
    new = str(cast.rng.randint(100, 999))
    return cast.say("constant", old=part.constant, new=new), code, swap_word(code, part.constant, new)


def _other_sign(cast: Cast, code: str, wish: str, old: str, signs: Sequence[str]) -> Edit | None:
    if not old:
        return None
    new = cast.rng.choice([sign for sign in signs if sign != old])
    return cast.say(wish, old=old, new=new), code, code.replace(f" {old} ", f" {new} ")


def change_comparison(cast: Cast, code: str, part: Snippet) -> Edit | None:
    return _other_sign(cast, code, "comparison", part.comparison, ("<", ">", "<=", ">="))


def change_operator(cast: Cast, code: str, part: Snippet) -> Edit | None:
    return _other_sign(cast, code, "operator", part.operator, "+-*")


_MISSPELT = (("return ", "retrun "), ("return ", "retun "), ("for ", "fro "), (" in ", " on "), ("if ", "fi "))


def fix_syntax(cast: Cast, code: str, part: Snippet) -> Edit:
    if cast.chance(0.5):
        lines = code.split("\n")
        places = [i for i, line in enumerate(lines) if line.endswith(":")]
        broken_lines = set(cast.rng.sample(places, min(len(places), cast.rng.choice((1, 1, 2)))))
        broken_code = "\n".join(line[:-1] if i in broken_lines else line for i, line in enumerate(lines))
    else:
        broken_code = code.replace(*cast.rng.choice(_MISSPELT), 1)
    return cast.say("syntax"), broken_code, code


def _begun_with(code: str, function: str, *lines: str) -> str:
    """`code` with more lines at the beginning of a function."""
    return re.sub(
        rf"(?m)^( *)def {function}\(.*", lambda m: "\n".join([m[0], *(f"{m[1]}    {line}" for line in lines)]), code
    )


def add_docstring(cast: Cast, code: str, part: Snippet) -> Edit:
    text = cast.say(
        "docstrings", first=part.names[0], last=part.names[-1], town=cast.town(), person=cast.person(),
        page=cast.rng.randint(2, 99),
    )  # fmt: skip
    name = [*_names(cast, part.function), *_names(cast, part.function)]
    return cast.say("docstring", text=text, name=name), code, _begun_with(code, part.function, f'"""{text}"""')


def add_type_hints(cast: Cast, code: str, part: Snippet) -> Edit | None:
    if not part.parameters:
        return None
    hints = " and ".join(f"{_names(cast, name)[0]} is {with_article(f'a {kind}')}" for name, kind in part.parameters)
    hint_text = ", ".join(f"{name}: {kind}" for name, kind in part.parameters)
    plain = ", ".join(name for name, _ in part.parameters)
    return (
        f"Add type hints: {hints}.",
        code,
        re.sub(rf"({part.function}\((self, )?){plain}\)", rf"\g<1>{hint_text})", code),
    )


def remove_comments(cast: Cast, code: str, part: Snippet) -> Edit:
    return cast.say("remove_comments"), with_comments(cast, code), code


def add_check(cast: Cast, code: str, part: Snippet) -> Edit | None:
    if not part.parameters:
        return None
    name = cast.rng.choice(part.parameters)[0]
    wish = cast.say("check", name=[*_names(cast, name), *_names(cast, name)])
    lines = f"if {name} is None:", f'    raise ValueError("{name} is missing")'
    return wish, code, _begun_with(code, part.function, *lines)


def add_default(cast: Cast, code: str, part: Snippet) -> Edit | None:
    if not part.parameters:
        return None
    name, kind = part.parameters[-1]
    value = "None" if kind == "list" else str(cast.rng.randint(100, 999))
    wish = cast.say("default", name=[*_names(cast, name), *_names(cast, name)], value=value)
    return wish, code, re.sub(rf"(def {part.function}\(.*\b{name})\)", rf"\1={value})", code)


def _everywhere(wish: str, change: Callable[[str], str]) -> Editor:
    """The edit that changes whatever it can in any code."""

    def edit(cast: Cast, code: str, part: Snippet) -> Edit | None:
        new_code = change(code)
        return None if new_code == code else (cast.say(wish), code, new_code)

    return edit


print_before_return = _everywhere(
    "print_before_return", lambda code: re.sub(r"(?m)^( *)return (.*)", r"\1print(\2)\n\g<0>", code)
)
to_javascript = _everywhere("javascript", javascript)
remove_prints = _everywhere("remove_prints", lambda code: re.sub(r"(?m)^ *print\(.*\n", "", code))
log_instead_of_print = _everywhere("log_instead_of_print", lambda code: code.replace("print(", "logger.info("))
shorten_updates = _everywhere("shorten_updates", lambda code: re.sub(r"([\w.]+) = \1 ([-+*]) ", r"\1 \2= ", code))

# How often each edit is drawn.
EDITS: dict[Editor, int] = {
    rename_variable: 8, rename_function: 4, change_constant: 3, change_comparison: 2, change_operator: 2, fix_syntax: 3,
    print_before_return: 2, add_docstring: 3, add_type_hints: 2, to_javascript: 4, remove_comments: 2, remove_prints: 1,
    log_instead_of_print: 1, add_check: 2, add_default: 2, shorten_updates: 2,
}  # fmt: skip


def code_edit(rng: random.Random) -> TaskExample:
    """One or two functions and one change to make to them."""
    while True:
        edit = rng.choices(list(EDITS), list(EDITS.values()))[0]
        cast = Cast(rng)
        parts = [snippet(cast) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        result = edit(cast, "\n\n".join(p.code for p in parts), rng.choice(parts))
        if result is not None and result[1] != result[2]:
            wish, old_code, new_code = result
            language = "javascript" if edit is to_javascript else "python"
            return TaskExample("code_edit", cast.lead_in(wish), (fence(old_code),), "", fence(new_code, language))
