"""The trace record: its tables, and every way in which one can contradict itself."""

import copy
import json
import math
from collections.abc import Callable
from operator import setitem

import pytest

from decoders.trace.check import MAX_STRING, check
from decoders.trace.tables import SCHEMA, TABLES, TraceError
from decoders.trace.trace import Trace

from . import recordings
from .recordings import append, descend, step_ids


def test_honest_traces_pass(trace: Trace):
    check(trace)


def test_a_trace_passes_at_every_step_of_its_run(tree: Trace):
    opening, deltas = recordings.deltas(tree)
    check(opening)
    for delta in deltas:
        opening.extend(delta)
        check(opening)


def test_json_round_trip(trace: Trace):
    document = json.loads(json.dumps(trace.to_json()))
    assert Trace.from_json(document).to_json() == trace.to_json()


def test_rows_extend_and_append_agree(tree: Trace):
    opening, deltas = recordings.deltas(tree)
    for delta in deltas:
        opening.extend(delta)
    one = Trace.new(tree.run)
    for table, columns in tree.tables.items():
        for row in range(tree.rows(table)):
            append(one, table, {name: values[row] for name, values in columns.items()})
    expected = copy.deepcopy(tree.tables)
    assert one.tables == expected
    expected["candidates"]["would_accept"] = [-1] * tree.rows("candidates")
    assert opening.tables == expected


def test_ids_and_text(tree: Trace):
    assert tree.prompt_ids + tree.output_ids == tree.tables["tokens"]["id"]
    steps = [step_ids(tree, step) for step in range(tree.rows("steps"))]
    assert [token for ids in steps for token in ids] == tree.output_ids
    pieces = tree.tables["pieces"]
    known = dict(zip(pieces["id"], zip(pieces["hex"], pieces["special"], strict=True), strict=True))
    written = [known[token] for token in tree.output_ids]
    assert written[-1][1], "the stop token is special, so it is no text"
    text = bytes.fromhex("".join(code for code, special in written if not special)).decode()
    assert tree.text(tree.output_ids) == text
    assert tree.text([]) == tree.text([10**9]) == ""


def test_text_replaces_bytes_that_are_no_character():
    trace = Trace.new({"prompt_length": 1})
    trace.extend({"pieces": {"id": [1, 2, 3], "hex": ["f09f", "9880", "ff"], "special": [False] * 3}})
    assert trace.text([1, 2]) == "😀"
    assert trace.text([1, 3]) == "\ufffd\ufffd"


def test_extend_refuses_an_unknown_column(tree: Trace):
    with pytest.raises(KeyError):
        tree.extend({"tokens": {"colour": ["red"]}})


def test_show_asks_the_front_end_that_announced_itself(tree: Trace, monkeypatch: pytest.MonkeyPatch):
    class Viewer:
        def load(self):
            return lambda trace, step, height: (trace.run["id"], step, height)

    installed = {"specviz.viewers": [Viewer()]}
    monkeypatch.setattr("decoders.trace.trace.entry_points", lambda group: installed.get(group, []))
    assert tree.show(3) == (tree.run["id"], 3, 980)
    monkeypatch.setattr("decoders.trace.trace.entry_points", lambda group: [])
    with pytest.raises(TraceError, match="no viewer is installed"):
        tree.show()


Damage = Callable[[Trace], None]


def set_(table: str, column: str, row: int, value: object) -> Damage:
    return lambda trace: setitem(trace.tables[table][column], row, value)


def run_(key: str, value: object) -> Damage:
    *above, last = key.split(".")
    return lambda trace: setitem(descend(trace.run, above), last, value)


def drop(table: str, column: str | None = None, row: int | None = None) -> Damage:
    def damage(trace: Trace) -> None:
        if column is None:
            del trace.tables[table]
        elif row is None:
            del trace.tables[table][column]
        else:
            del trace.tables[table][column][row]

    return damage


def another_token(table: str, column: str) -> Damage:
    """The first row gets the prompt's first token."""
    return lambda trace: setitem(trace.tables[table][column], 0, trace.tables["tokens"]["id"][0])


def more(trace: Trace, table: str, column: str, value: object) -> None:
    """A column that this program does not know."""
    trace.tables[table][column] = [value] * trace.rows(table)


def accepted_sibling(trace: Trace) -> None:
    nodes = trace.tables["nodes"]
    nodes["status"][nodes["status"].index("rejected")] = "accepted"


DAMAGE: list[tuple[str, Damage, str]] = [
    ("a run without an id", lambda t: t.run.pop("id") and None, "run.id is missing"),
    ("a path as the id", run_("id", "../../etc/passwd"), "letters, digits"),
    ("an id that is no text", run_("id", 7), "run.id is 7"),
    ("true as a number", run_("max_new_tokens", True), "run.max_new_tokens is True"),
    ("nothing to begin with", run_("prompt_length", 0), "below 1"),
    ("a method without a name", lambda t: t.run["method"].pop("name") and None, "run.method.name is missing"),
    ("a timing that is text", run_("timings.prefill_ms", "fast"), "timings.prefill_ms"),
    ("a metric that is a list", run_("metrics.tokens", [1]), "metrics.tokens"),
    ("a stop token that is text", run_("stop_ids", ["2"]), "stop_ids"),
    ("controls that are text", run_("method.controls", ["k"]), "controls"),
    ("terms that are text", run_("terms", ["cosine"]), "run.terms[0]"),
    ("a term twice", lambda t: t.run["terms"].append(t.run["terms"][0]), "twice"),
    ("a run of infinite numbers", run_("extra", {"a": [math.inf]}), "finite"),
    ("a run with endless text", run_("extra", "x" * 30_000), "30,000 characters"),
    ("a run nested deeply", run_("extra", json.loads("[" * 20 + "]" * 20)), "nested"),
    ("a run with too much in it", run_("extra", [0] * 30_000), "too large"),
    ("a run with bytes in it", run_("extra", b"x"), "JSON"),
    ("a number of a thousand bits", run_("extra", 2**1000), "64 bits"),
    ("half a surrogate pair", run_("title", "\ud800"), "surrogate"),
    ("a table missing", drop("probes"), "probes is missing"),
    ("a column missing", drop("steps", "route"), "steps.route is missing"),
    ("a term's column missing", drop("candidates", "term:cosine"), "term:cosine is missing"),
    ("a column too many", lambda t: t.tables["steps"].update(colour=[]), "steps.colour has 0 rows"),
    ("a column of lists", lambda t: more(t, "nodes", "shape", []), "nodes.shape, row 0, is a list"),
    ("a column of objects", lambda t: more(t, "nodes", "shape", {}), "nodes.shape, row 0, is a dict"),
    (
        "a column of what is no number",
        lambda t: more(t, "nodes", "heat", math.nan),
        "nodes.heat, row 0, is not a finite",
    ),
    ("a column of huge numbers", lambda t: more(t, "steps", "heat", 2**60), "steps.heat holds a whole number beyond"),
    ("a column of endless text", lambda t: more(t, "steps", "note", "x" * (MAX_STRING + 1)), "characters long"),
    ("a column named like a formula", lambda t: more(t, "steps", "=1", 1), "'=1' is not the name"),
    ("a column named by nobody", lambda t: more(t, "steps", "__proto__", 1), "'__proto__' is not the name"),
    ("a hundred columns", lambda t: [more(t, "steps", f"c{n}", 1) for n in range(100)] and None, "1 to 64 are allowed"),
    ("a hundred tables", lambda t: t.tables.update({f"t{n}": {"a": []} for n in range(100)}), "100 tables"),
    ("a table without columns", lambda t: t.tables.update(more={}), "'more' has 0 columns"),
    ("a table of two lengths", lambda t: t.tables.update(more={"a": [1], "b": []}), "more.b has 0 rows"),
    ("a column that is no list", lambda t: t.tables["steps"].update(route="lexical"), "not a list"),
    ("columns of different lengths", drop("nodes", "depth", 3), "rows"),
    ("text where a number belongs", set_("steps", "drafted", 0, "3"), "steps.drafted, row 0, is '3'"),
    ("true where a number belongs", set_("steps", "drafted", 0, True), "steps.drafted"),
    ("a fraction where a count belongs", set_("steps", "accepted", 0, 1.0), "steps.accepted"),
    ("null where a count belongs", set_("nodes", "parent", 1, None), "nodes.parent, row 1, is None"),
    ("a number where text belongs", set_("nodes", "reason", 1, 5), "nodes.reason"),
    ("not a number", set_("tokens", "prob", -1, math.nan), "finite"),
    ("a number beyond every float", set_("tokens", "prob", -1, 10**400), "too large"),
    ("a whole number beyond 64 bits", set_("tokens", "source", -1, 10**30), "beyond 2^53"),
    ("a whole number that browsers round", set_("tokens", "source", -1, 2**60), "beyond 2^53"),
    ("endless text in a column", set_("steps", "reason", 0, "x" * (MAX_STRING + 1)), "characters long"),
    ("a surrogate in a column", set_("steps", "reason", 0, "\udc00"), "surrogate"),
    ("odd hexadecimal", set_("pieces", "hex", 0, "abc"), "hexadecimal"),
    ("hexadecimal that is none", set_("pieces", "hex", 0, "zz"), "hexadecimal"),
    ("hexadecimal in other digits", set_("pieces", "hex", 0, "١١"), "hexadecimal"),
    ("a piece twice", lambda t: set_("pieces", "id", 1, t.tables["pieces"]["id"][0])(t), "twice"),
    ("a negative token", set_("pieces", "id", 0, -5), "pieces.id"),
    ("a token without a piece", set_("nodes", "token", 2, 10**6), "the ids listed in pieces"),
    ("a choice without a piece", set_("targets", "token", 2, 10**6), "the ids listed in pieces"),
    ("a kind that does not exist", set_("tokens", "kind", -1, "guessed"), "accepted, bonus, plain, prompt"),
    ("a status that does not exist", set_("nodes", "status", 1, "<b>"), "nodes.status"),
    ("a probability of two", set_("tokens", "prob", -1, 2.0), "0 to 1"),
    ("a negative time", set_("steps", "draft_ms", 0, -1.0), "steps.draft_ms"),
    ("a step that does not exist", set_("nodes", "step", -1, 10_000), "nodes.step"),
    ("steps out of order", set_("candidates", "step", -1, 0), "order of the steps"),
    ("a prompt longer than the text", run_("prompt_length", 10_000), "prompt_length is 10,000"),
    ("a prompt shorter than it is", lambda t: run_("prompt_length", t.run["prompt_length"] - 1)(t), "steps.context"),
    ("more accepted than drafted", set_("steps", "accepted", 0, 500), "steps.accepted"),
    ("an emitted count of its own", set_("steps", "emitted", 0, 99), "steps.emitted"),
    ("a context of its own", set_("steps", "context", 1, 5), "steps.context"),
    ("a bonus that was not emitted", another_token("steps", "bonus"), "steps.bonus"),
    ("a bonus below -1", set_("steps", "bonus", 0, -2), "steps.bonus"),
    ("an output token of another step", set_("tokens", "step", -1, 0), "tokens.step"),
    ("a prompt token in the output", set_("tokens", "kind", -1, "prompt"), "tokens.kind"),
    ("a token copied from the future", set_("tokens", "source", 5, 5), "an earlier position"),
    ("a passage of -2", set_("tokens", "passage", 0, -2), "tokens.passage"),
    ("a root with a parent", set_("nodes", "parent", 0, 0), "nodes.parent"),
    ("a child before its parent", set_("nodes", "parent", 1, 1), "nodes.parent"),
    ("a depth of its own", set_("nodes", "depth", 1, 2), "nodes.depth"),
    ("a deepest node of its own", set_("steps", "depth", 0, 99), "steps.depth"),
    ("a root that is accepted", set_("nodes", "status", 0, "accepted"), "nodes.status"),
    ("a root that is another token", another_token("nodes", "token"), "nodes.token"),
    ("a source after the root", set_("nodes", "source", 1, 100_000), "nodes.source"),
    ("a rank of -2", set_("nodes", "rank", 1, -2), "nodes.rank"),
    ("an accepted node too many", accepted_sibling, "steps.accepted"),
    ("a choice after a node that is not there", set_("targets", "node", 0, 500), "targets.node"),
    ("an anchor after the step", set_("candidates", "position", 0, 100_000), "candidates.position"),
    ("an endless offer", set_("candidates", "length", 0, 2**40), "candidates.length"),
    ("a rank below 0", set_("candidates", "rank", 0, -1), "candidates.rank"),
    ("more right tokens than offered", set_("candidates", "would_accept", 0, 500), "candidates.would_accept"),
    ("two chosen candidates", lambda t: t.tables["candidates"].update(chosen=[True] * t.rows("candidates")), "chosen"),
]


@pytest.mark.parametrize(("damage", "says"), [pytest.param(d, says, id=name) for name, d, says in DAMAGE])
def test_every_contradiction_is_found_and_named(tree: Trace, damage: Damage, says: str):
    check(tree)
    damage(tree)
    with pytest.raises(TraceError) as caught:
        check(tree)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)


def test_siblings_are_distinct(tree: Trace):
    nodes = tree.tables["nodes"]
    parents = list(zip(nodes["step"], nodes["parent"], strict=True))
    row = next(r for r in range(len(parents)) if nodes["status"][r] == "rejected" and parents.count(parents[r]) > 1)
    other = next(r for r in range(len(parents)) if r != row and parents[r] == parents[row])
    nodes["token"][row] = nodes["token"][other]
    with pytest.raises(TraceError, match="siblings"):
        check(tree)


def test_documents_of_another_version_are_refused_by_name(tree: Trace):
    document = tree.to_json()
    for version in ("spectrace/2", None, 3, ["spectrace/1"]):
        with pytest.raises(TraceError, match=SCHEMA):
            Trace.from_json({**document, "schema": version})
    with pytest.raises(TraceError, match="'more' has 0 columns"):
        Trace.from_json({**document, "more": {}})
    with pytest.raises(TraceError, match="part named '../more'"):
        Trace.from_json({**document, "../more": {"a": [1]}})
    with pytest.raises(TraceError, match="steps is missing"):
        Trace.from_json({**document, "steps": []})


def test_whole_numbers_become_floats_where_floats_belong(tree: Trace):
    document = copy.deepcopy(tree.to_json())
    document["steps"]["draft_ms"] = [1] * tree.rows("steps")
    read = Trace.from_json(document)
    assert read.tables["steps"]["draft_ms"] == [1.0] * tree.rows("steps")
    assert {type(v) for v in read.tables["steps"]["draft_ms"]} == {float}


def test_every_column_is_described():
    for columns in TABLES.values():
        assert all(c.type in {"int", "float", "str", "bool"} and len(c.help) > 1 for c in columns)
        assert len({c.name for c in columns}) == len(columns)


def test_mutations_of_a_recorded_run_pass(trace: Trace):
    """Longer and shorter runs, as other tests use them, are valid."""
    assert recordings.repeat(trace, 1).tables == trace.tables
    longer = recordings.repeat(trace, 3, 2)
    check(longer)
    assert longer.output_ids == trace.output_ids * 3 and longer.prompt_ids == trace.prompt_ids * 2
    check(recordings.beginning(trace, 2))
