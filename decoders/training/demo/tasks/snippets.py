"""Small Python functions and classes with made-up names."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from .words import Cast

# Slots: f function, g class, s list, a b parameters, r t results, x loop variable, n constant, o operator,
# q comparison. The comment above each says what its parameters hold.
_SOURCE = """\
# s: list, a: int
def {f}({s}, {a}):
    {r} = {n}
    for {x} in {s}:
        if {x} {q} {a}:
            {r} = {r} {o} {x}
    return {r}


# s: list
def {f}({s}):
    {r} = []
    for {x} in {s}:
        {t} = {x} {o} {n}
        {r}.append({t})
    return {r}


# s: list, a: float
def {f}({s}, {a}):
    if not {s}:
        return {a}
    {r} = len({s})
    {t} = sum({s}) {o} {r}
    return {t}


# s: list, a: int
def {f}({s}, {a}):
    {r} = {{}}
    for {x} in {s}:
        {r}[{x}] = {a} {o} {n}
    return {r}


# a: int, b: str, x: int
class {g}:
    def __init__(self, {a}, {b}):
        self.{a} = {a}
        self.{b} = {b}
        self.{r} = {n}

    def {f}(self, {x}):
        self.{r} = self.{r} {o} {x}
        return self.{r}


# a: int, b: int
def {f}({a}, {b}):
    {r} = {n}
    while {r} {q} {a}:
        {r} = {r} {o} {b}
        print({r})
    return {r}


# a: int, b: int
def {f}({a}, {b}):
    {r} = {a} {o} {b}
    {t} = {r} {o} {n}
    return {t}


# s: list, a: int
def {f}({s}, {a}):
    {r} = []
    {t} = {n}
    for {x} in {s}:
        {t} = {t} {o} {x}
        if {t} {q} {a}:
            {r}.append({t})
            {t} = {n}
    return {r}


# s: list, a: str
def {f}({s}, {a}):
    {r} = {n}
    for {x} in {s}:
        if {x} == {a}:
            return {r}
        {r} = {r} + 1
    return None


# a: int, b: int
def {f}({a}, {b}):
    if {a} {q} {n}:
        {r} = {b}
    else:
        {r} = {b} {o} {a}
    print({r})
    return {r}


# s: list, a: int
class {g}:
    def __init__(self, {s}):
        self.{s} = {s}
        self.{r} = []

    def {f}(self, {a}):
        for {x} in self.{s}:
            if {x} {q} {a}:
                self.{r}.append({x})
        return self.{r}


# s: list
def {f}({s}):
    {r} = {s}[0]
    for {x} in {s}:
        if {x} {q} {r}:
            {r} = {x}
    return {r}


# a: int, b: int
def {f}({a}, {b}):
    {r} = []
    for {x} in range({a}):
        {t} = {x} {o} {b}
        if {t} {q} {n}:
            {r}.append({t})
    print({r})
    return {r}


# s: list, a: int, b: int
def {f}({s}, {a}, {b}):
    {r} = {n}
    for {x} in {s}:
        if {x} {q} {a} and {x} != {b}:
            {r} = {r} + {x}
    return {r}


# s: list, a: str
def {f}({s}, {a}):
    {t} = {{}}
    for {x} in {s}:
        {r} = {x}[{a}]
        if {r} in {t}:
            {t}[{r}] = {t}[{r}] + 1
        else:
            {t}[{r}] = {n}
    return {t}


# a: int
class {g}:
    def __init__(self, {a}):
        self.{a} = {a}
        self.{r} = {n}

    def {f}(self):
        if self.{r} {q} self.{a}:
            return False
        self.{r} = self.{r} + 1
        return True


# a: int
def {f}({a}):
    {r} = {n}
    {t} = 1
    while {t} {q} {a}:
        {t} = {t} + {r}
        {r} = {r} {o} {t}
    return {r}


# a: int, s: list
def {f}({a}, {s}):
    {r} = len({s})
    {t} = {a} {o} {r}
    for {x} in {s}:
        print({x})
    return {t}
"""


@dataclass(frozen=True)
class _Template:
    """Code with slots, and the types of its parameters by slot."""

    code: str
    kinds: dict[str, str]

    @classmethod
    def parse(cls, block: str) -> _Template:
        told, code = block.strip("\n").split("\n", 1)
        return cls(code, dict(re.findall(r"(\w): (\w+)", told)))


_TEMPLATES = tuple(_Template.parse(block) for block in _SOURCE.split("\n\n\n"))

_COMMENTS = (
    "start here",
    "this is the result",
    "check the value first",
    "needed later",
    "see the notes",
    "keep this simple",
    "one step at a time",
    "nothing to do here",
    "old code below",
    "add it up",
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
    rng = cast.rng
    chosen = rng.choice(_TEMPLATES)
    template, kinds = chosen.code, chosen.kinds
    values: dict[str, str] = {}
    for slot, draw in (
        ("f", cast.function),
        ("s", cast.sequence),
        ("a", cast.variable),
        ("b", cast.variable),
        ("r", cast.variable),
        ("t", cast.variable),
        ("x", cast.variable),
        ("g", lambda: cast.variable().title().replace("_", "")),
    ):
        if "{" + slot + "}" in template:
            values[slot] = draw()
    variables = tuple(values[slot] for slot in "sabrtx" if slot in values)
    values["n"] = str(rng.randint(2, 99))
    values["o"] = rng.choice("+-*")
    values["q"] = rng.choice(("<", ">", "<=", ">=", "=="))
    signature = re.search(r"def {f}\((.*?)\)", template)
    slots = re.findall(r"{(\w)}", signature.group(1)) if signature else []
    return Snippet(
        code=template.format(**values),
        function=values["f"],
        parameters=tuple((values[s], kinds.get(s, "int")) for s in slots),
        names=variables,
        constant=values["n"] if "{n}" in template else "",
        operator=values["o"] if "{o}" in template else "",
        comparison=values["q"] if "{q}" in template else "",
    )


def with_comments(rng: random.Random, code: str) -> str:
    """`code` with a comment line above one to three of its lines."""
    lines = code.split("\n")
    candidates = [
        i for i, line in enumerate(lines) if i and line.strip() and not line.strip().startswith(("else", "class"))
    ]
    chosen = set(rng.sample(candidates, min(len(candidates), rng.choice((1, 2, 2, 3)))))
    out: list[str] = []
    for number, line in enumerate(lines):
        if number in chosen:
            out.append(f"{indent(line)}# {rng.choice(_COMMENTS)}")
        out.append(line)
    return "\n".join(out)


def indent(line: str) -> str:
    """The spaces that `line` begins with."""
    return line[: len(line) - len(line.lstrip(" "))]


def rename(code: str, old: str, new: str) -> str:
    """`code` with the identifier `old` called `new`."""
    return re.sub(rf"\b{re.escape(old)}\b", lambda _: new, code)


def _parts(pattern: str, line: str) -> tuple[str, ...]:
    """The groups of a pattern that the whole line is known to match."""
    match = re.fullmatch(pattern, line)
    assert match is not None, line
    return match.groups()


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
    declared: set[str] = set()
    in_class = False
    lines = code.split("\n")
    for line in lines:
        body = line.strip()
        if not body:
            continue
        margin = indent(line)
        while open_blocks and len(margin) <= len(open_blocks[-1]):
            closed = open_blocks.pop()
            if body == "else:" and closed == margin:
                break
            out.append(closed + "}")
        if body.startswith("class "):
            in_class = True
            out.append(f"{body[:-1]} {{")
        elif body.startswith("def "):
            name, parameters = _parts(r"def (\w+)\((.*)\):", body)
            declared = set(re.findall(r"\w+", parameters))
            name = "constructor" if name == "__init__" else name
            parameters = re.sub(r"^self(, )?", "", parameters)
            out.append(f"{margin}{'' if in_class else 'function '}{name}({parameters}) {{")
        elif body.startswith("for "):
            variable, source = _parts(r"for (\w+) in (.*):", body)
            if source.startswith("range("):
                end = source[6:-1]
                out.append(f"{margin}for (let {variable} = 0; {variable} < {end}; {variable}++) {{")
            else:
                out.append(f"{margin}for (const {variable} of {_expression(source)}) {{")
        elif body.startswith(("if ", "while ")):
            word, condition = body[:-1].split(" ", 1)
            out.append(f"{margin}{word} ({_expression(condition)}) {{")
        elif body == "else:":
            out.append(f"{margin}}} else {{")
        else:
            assigned = re.match(r"(\w+) = ", body)
            new = assigned is not None and assigned.group(1) not in declared
            if new and assigned is not None:
                declared.add(assigned.group(1))
            out.append(f"{margin}{'var ' if new else ''}{_expression(body)};")
        if body.endswith(":"):
            open_blocks.append(margin)
    out.extend(margin + "}" for margin in reversed(open_blocks))
    return "\n".join(out)


def _expression(python: str) -> str:
    text = python.replace("self.", "this.").replace("print(", "console.log(").replace(".append(", ".push(")
    text = re.sub(r"\blen\((\w+)\)", r"\1.length", text)
    text = re.sub(r"\bnot (\w+)", r"!\1", text)
    text = text.replace(" and ", " && ").replace(" == ", " === ").replace(" != ", " !== ")
    for word, other in (("None", "null"), ("True", "true"), ("False", "false")):
        text = re.sub(rf"\b{word}\b", other, text)
    return text
