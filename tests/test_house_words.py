"""Names and docstrings in the field's words: no participle names a thing, no docstring opens with a question."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
IRREGULAR = frozenset(
    """asked bent bitten blown born borne bought broken brought built caught chosen dealt done drawn driven eaten fallen
    fed felt fled flown forgotten fought found frozen given gone got grown had heard held hung kept known laid lain led
    left lent lit lost made meant met paid proven ridden risen said seen sent sewn shaken shot shown slept sold sought
    spent spoken sprung spun stolen stood struck stuck swept sworn taken taught thought thrown told torn understood
    wanted wept woken won worn woven written""".split()  # noqa: SIM905
)
VERBS = frozenset("bleed breed embed exceed feed need proceed seed speed succeed".split())  # noqa: SIM905

# names of columns, or of parameters, that a property reads: the field's own words
FIELD = frozenset({"Verdict.accepted", "Step.accepted", "DraftTree.drafted", "Draft.proposed", "PartCard.offered"})
# participles that the field uses of values: a boolean, a tensor, a count of tokens
ADJECTIVES = frozenset(
    """accepted batched biased cached captured changed clipped closed compiled copied decoded drafted elapsed embedded
    emitted encoded expected failed fixed fused grounded logged masked matched measured mixed nested normed packed
    padded planned pooled predicted processed proposed pruned quantized recorded refused rejected required rounded
    sampled scaled scored served shared shifted shuffled tied trained truncated unsaved unused verified""".split()  # noqa: SIM905
)
PRONOUNS = frozenset(
    """all another any anything both each either every everything he her hers his it its mine neither none nothing one
    ones other others ours own same she some something such that theirs them these they this those what which who
    whom whose yours""".split()  # noqa: SIM905
)
ADVERBS = frozenset(
    """above after again ahead alone along already apart around away back before behind below beside besides beyond
    earlier else enough far few further here how inside later least less many more most much now once outside rest
    so still then there together too when where whether why yet""".split()  # noqa: SIM905
)
LARGEST_SHARE = 0.005  # of all bound names that may be none of a thing: fields of traces and of the public API
OPENING = re.compile(r"(What|Where|How|Whether|Which|Who|Whose|Why|When|Those)\b")
CANDIDATE = re.compile(
    rf"(def|class) _*(\w+ed|{'|'.join(IRREGULAR)})\b|\"\"\"{OPENING.pattern}", re.IGNORECASE
)
WORDS = Path(__file__).with_name("words_left.txt")


def modules(folder: str) -> list[Path]:
    """The modules of a folder, without the annexes' tests."""
    top = ROOT / folder
    return sorted(path for path in top.rglob("*.py") if "tests" not in path.relative_to(top).parts)


def is_participle(name: str) -> bool:
    """True for a name of a single word that is a participle."""
    word = name.strip("_")
    single = word == word.lower() or re.fullmatch(r"[A-Z][a-z]+", word)
    word = word.lower()
    return bool(single and "_" not in word and (word in IRREGULAR or (word.endswith("ed") and word not in VERBS)))


def definitions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Qualified name and node of every function and class below a node."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield inside + node.name, node  # type: ignore[misc]
            yield from definitions(node, f"{inside}{node.name}.")
        else:
            yield from definitions(node, inside)


def refusals(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Refusals of the lint in a module's text, as (kind, place): ``name`` or ``docstring``."""
    tree = ast.parse(text)
    if is_participle(Path(path).stem):
        yield "name", path
    if OPENING.match(ast.get_docstring(tree) or ""):
        yield "docstring", path
    for name, node in definitions(tree):
        if is_participle(node.name) and ".".join(name.split(".")[-2:]) not in FIELD:
            yield "name", f"{path} {name}"
        if OPENING.match(ast.get_docstring(node) or ""):
            yield "docstring", f"{path} {name}"


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that a module binds, with its line: variables, parameters, attributes, functions and classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def names_no_thing(name: str) -> bool:
    """True for a pronoun, an adverb, or a participle that is no adjective of the field."""
    word = name.strip("_").lower()
    participle = is_participle(word if name.isupper() else name)
    return word in PRONOUNS | ADVERBS or (participle and word not in ADJECTIVES)


@cache
def faults() -> Counter[tuple[str, str]]:
    """The lint's refusals in the tree."""
    found: Counter[tuple[str, str]] = Counter()
    for folder in ("decoders", "specviz", "benchmarks", "tests"):
        for path in modules(folder):
            text = path.read_text("utf-8")
            if CANDIDATE.search(text) or is_participle(path.stem):  # most modules have none: they are not parsed
                found.update(refusals(path.relative_to(ROOT).as_posix(), text))
    return found


def left_to_mend() -> Counter[tuple[str, str]]:
    """The faults that are left to mend, a line each: kind and place."""
    lines = WORDS.read_text("utf-8").splitlines()
    return Counter((kind, place) for kind, place in (line.split(" ", 1) for line in lines if line[:1] not in "#"))


def test_no_new_participle_and_no_new_riddle():
    new = sorted(f"{kind} {place}" for kind, place in faults() - left_to_mend())
    assert not new, (
        "name functions by verbs and classes by nouns; a docstring's first words say what the thing is or does:\n"
        + "\n".join(new)
    )


@pytest.mark.parametrize("package", ["decoders", "specviz"])
def test_names_are_nouns_and_verbs(package: str):
    """Of the few that are left most are fields of traces and of the public API, which keep their names."""
    names, faulty = 0, list[str]()
    for path in modules(package):
        for name, line in bound_names(ast.parse(path.read_text("utf-8"))):
            names += 1
            if names_no_thing(name) and not name.startswith("__"):
                faulty.append(f"{path.relative_to(ROOT)}:{line} {name}")
    share = len(faulty) / names
    assert share <= LARGEST_SHARE, f"{share:.2%} of the names name no thing: rename some of these\n" + "\n".join(faulty)


def test_a_name_that_names_no_thing_is_seen():
    text = "for one in ones: x = one\nkept = told(lambda mine: 1)\nself.theirs = [there for there in x]\n"
    text += "with f() as made: ..."
    assert sorted(name for name, _ in bound_names(ast.parse(text)) if names_no_thing(name)) == [
        "kept", "made", "mine", "one", "theirs", "there",
    ]  # fmt: skip
    assert not any(map(names_no_thing, ("accepted", "kept_rows", "need", "first", "rows", "is_known")))


def test_the_list_of_what_is_left_only_shrinks():
    gone = left_to_mend() - faults()
    mended = sorted(f"{kind} {place}" for kind, place in gone if (ROOT / place.split()[0]).exists())
    assert not mended, "these are mended; take their lines out of tests/words_left.txt:\n" + "\n".join(mended)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("def told(): ...", ["name"]),
        ("class Kept:\n    def pruned(self): ...", ["name", "name"]),
        ("def tell():\n    def _settled(): ...", ["name"]),
        ('def find():\n    """Where it is."""', ["docstring"]),
        ('"""What it does."""', ["docstring"]),
        ("def embed(): ...\ndef feed(): ...\ndef select_kept(): ...\nclass Embedding: ...", []),
        ("class Step:\n    @property\n    def accepted(self): ...", []),
        ('def find():\n    """The place; where there is none, -1."""', []),
    ],
)
def test_a_participle_and_a_riddle_are_seen(text: str, kinds: list[str]):
    assert [kind for kind, _ in refusals("decoders/x.py", text)] == kinds


def test_a_module_is_named_by_a_noun():
    assert [*refusals("decoders/kept.py", "")] == [("name", "decoders/kept.py")]
    assert not [*refusals("decoders/plan.py", "")]
