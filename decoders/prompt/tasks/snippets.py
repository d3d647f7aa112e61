"""Small Python functions and classes with made-up names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .words import FOLDER, Cast

# Of each template (`snippets.txt`), the types of its parameters by slot, and its code.
_TEMPLATES = tuple(
    (dict(re.findall(r"(\w): (\w+)", kinds)), code.rstrip("\n"))
    for kinds, code in (
        block.split("\n", 1) for block in (FOLDER / "snippets.txt").read_text("utf-8").split("\n\n\n")[1:]
    )
)


@dataclass(frozen=True)
class Snippet:
    """A function or class, the names it uses, and what its parameters hold.

    `parameters` are (name, type) pairs of the function called `function`; `names` are all its variables.
    """

    code: str
    function: str
    parameters: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    constant: str
    operator: str
    comparison: str


def snippet(cast: Cast) -> Snippet:
    """One snippet whose names all begin differently."""
    kinds, template = cast.rng.choice(_TEMPLATES)
    draws = {"f": cast.function, "s": cast.sequence, **dict.fromkeys("abrtx", cast.variable)}
    draws["g"] = lambda: cast.variable().title().replace("_", "")
    values = {slot: draw() for slot, draw in draws.items() if "{" + slot + "}" in template}
    values["n"] = str(cast.rng.randint(2, 99))
    values["o"] = cast.rng.choice("+-*")
    values["q"] = cast.rng.choice(("<", ">", "<=", ">=", "=="))
    signature = re.search(r"def {f}\((.*?)\)", template)
    slots = re.findall(r"{(\w)}", signature[1]) if signature else []
    return Snippet(
        template.format(**values),
        values["f"],
        tuple((values[slot], kinds.get(slot, "int")) for slot in slots),
        tuple(values[slot] for slot in "sabrtx" if slot in values),
        *(values[slot] if "{" + slot + "}" in template else "" for slot in "noq"),
    )


def with_comments(cast: Cast, code: str) -> str:
    """`code` with a comment line above one to three of its lines."""
    lines = code.split("\n")
    possible = [
        i for i, line in enumerate(lines) if i and line.strip() and not line.strip().startswith(("else", "class"))
    ]
    comment_lines = set(cast.rng.sample(possible, min(len(possible), cast.rng.choice((1, 2, 2, 3)))))
    out: list[str] = []
    for number, line in enumerate(lines):
        if number in comment_lines:
            out.append(f"{indent(line)}# {cast.say('comments')}")
        out.append(line)
    return "\n".join(out)


def indent(line: str) -> str:
    """The spaces that `line` begins with."""
    return line[: len(line) - len(line.lstrip(" "))]


# Python's words and calls, and the beginnings of its blocks, in JavaScript
_EXPRESSIONS = (
    (r"\bself\.", "this."), (r"\bprint\(", "console.log("), (r"\.append\(", ".push("),
    (r"\blen\((\w+)\)", r"\1.length"), (r"\bnot (\w+)", r"!\1"), (" and ", " && "), (" == ", " === "),
    (" != ", " !== "), (r"\bNone\b", "null"), (r"\bTrue\b", "true"), (r"\bFalse\b", "false"),
)  # fmt: skip
_BLOCKS = (
    (r"class (\w+):", r"class \1 {"),
    (r"def __init__\((?:self(?:, )?)?(.*)\):", r"constructor(\1) {"),
    (r"def (\w+)\((?:self(?:, )?)?(.*)\):", r"\1(\2) {"),
    (r"for (\w+) in range\((.*)\):", r"for (let \1 = 0; \1 < \2; \1++) {"),
    (r"for (\w+) in (.*):", r"for (const \1 of \2) {"),
    (r"(if|while) (.*):", r"\1 (\2) {"),
    (r"else:", "} else {"),
)


def javascript(code: str) -> str:
    """`code` (one of our snippets) in JavaScript; `var`, since Python's variables too outlive their block.

    >>> print(javascript("def f(a):\\n    b = a + 1\\n    return b"))
    function f(a) {
        var b = a + 1;
        return b;
    }
    """
    out: list[str] = []
    open_blocks: list[str] = []  # their indents
    names: set[str] = set()
    in_class = False
    for line in filter(str.strip, code.split("\n")):
        body, margin = line.strip(), indent(line)
        while open_blocks and len(margin) <= len(open_blocks[-1]):
            closed = open_blocks.pop()
            if body != "else:" or closed != margin:
                out.append(closed + "}")
        in_class |= body.startswith("class ")
        script = body
        for python, replacement in _EXPRESSIONS:
            script = re.sub(python, replacement, script)
        if body.endswith(":"):
            open_blocks.append(margin)
            script = next(
                re.sub(start, replacement, script) for start, replacement in _BLOCKS if re.fullmatch(start, script)
            )
        if body.startswith("def "):
            names = set(re.findall(r"\w+", body)[2:])
            script = script if in_class else f"function {script}"
        elif not body.endswith(":"):
            assignment = re.match(r"(\w+) = ", body)
            if assignment and assignment[1] not in names:
                names.add(assignment[1])
                script = f"var {script}"
            script += ";"
        out.append(margin + script)
    out.extend(margin + "}" for margin in reversed(open_blocks))
    return "\n".join(out)
