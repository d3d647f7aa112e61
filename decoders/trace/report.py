"""A run's report for a page, beside its trace: metrics with their parts, shares and lists, so that it computes none.

``payload`` is a trace's JSON with its ``report``; reading a document leaves the report out, as it is made anew.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from . import metrics
from . import oracle as oracles
from .baseline import baseline
from .branches import branch_counts
from .lattice import lattice_steps
from .origins import recorded_origins
from .tables import REQUIRED, TABLES, columns_of, type_of
from .trace import Trace

OUTCOMES_LAST = ("mismatch", "none")


def payload(trace: Trace) -> dict[str, Any]:
    """A trace as a browser gets it."""
    return {**trace.to_json(), "report": report(trace)}


def report(trace: Trace) -> dict[str, Any]:
    """All numbers over a run that views show; a run that goes on has those of its steps so far.

    ``metrics``: per key ``value`` and the parts that its formula names (``Metric.worked``); ``doubts``: why some cannot
    be right; ``notes``: what has to be known of some, or why there is none. ``outcomes``, ``routes``:
    [name, steps], most first, mismatch and none last. ``drafting``: [part, Σ ms], to be set against ``verify_ms``.
    ``times``: ms by part of the run. ``lengths``: [accepted tokens, steps with a draft]. ``depths``: [depth, reached,
    accepted]. ``regrets``: the steps where the ranking lost tokens, the worst first. ``oracle``: the replay under a
    perfect ranking (``Oracle``), or ``why`` there is none. ``lattices``: a block's candidates by what followed
    (``LatticeStep``). ``branches``: acceptance by depth and rank, of second branches, and by who proposed
    (``branch_counts``). ``statuses``: nodes by status, ``own`` (tokens the target added), ``sources`` (accepted
    copies) and ``forbidden`` (by a processor, whatever became of them). ``origins``: [origin, nodes, accepted];
    ``legend``: how views tell origins apart. ``columns``: per table, those that no view draws in its own way.

    >>> trace = Trace.new({"prompt_length": 1})
    >>> trace.extend({"steps": {"origins": ["main", "", ""], "drafted": [4, 2, 0], "accepted": [2, 0, 0]}})
    >>> told = report(trace)
    >>> told["metrics"]["tokens_per_step"], told["outcomes"]
    ({'value': 1.6666666666666667, 'accepted': 2, 'steps': 3}, [['main', 1], ['mismatch', 1], ['none', 1]])
    """
    plain = baseline(trace)
    metric_values = metrics.measure(trace, plain.tokens_per_s)
    losses = sorted(
        (regret for regret in metrics.regrets(trace) if regret.tokens), key=lambda regret: (-regret.tokens, regret.step)
    )
    steps = trace.tables["steps"]
    return {
        "metrics": {key: {"value": m.value, **m.parts} for key, m in metric_values.items()},
        "doubts": metrics.doubts({key: m.value for key, m in metric_values.items()}),
        "notes": {**metrics.notes(trace), **({"speedup": plain.why} if plain.why else {})},
        "outcomes": _order(metrics.outcomes(trace)),
        "routes": _order(metrics.routes(trace)),
        "drafting": list(map(list, metrics.drafting_times(trace).items())),
        "verify_ms": sum(ms for ms in steps["verify_ms"] if ms is not None),
        "times": metrics.time_parts(trace),
        "lengths": sorted(map(list, Counter(metrics.accepted_lengths(trace)).items())),
        "depths": list(map(list, metrics.acceptance_by_depth(trace))),
        "regrets": [{"step": r.step, "chosen": r.chosen, "best": r.best, "tokens": r.tokens} for r in losses],
        "oracle": oracle_of(trace),
        "lattices": [asdict(lattice) for lattice in lattice_steps(trace)],
        "branches": branch_counts([trace]),
        "statuses": _statuses(trace),
        "origins": _origins(trace),
        "legend": recorded_origins(trace.run),
        "columns": plain_columns(trace),
    }


def oracle_of(trace: Trace) -> dict[str, Any]:
    """A run's replay under a perfect ranking (``Oracle``), or ``why`` there is none."""
    replay = oracles.oracle(trace)
    return replay.to_json() if replay is not None else {"why": oracles.unknown(trace)}


# of the columns added after the first version, those that views draw in a way of their own
ENGINE_COLUMNS = {"steps": {"engine", "engine_rows", "engine_keys", "decide_ms", "unlisted"}, "pruned": {"why"}}


def plain_columns(trace: Trace) -> dict[str, list[dict[str, str]]]:
    """Columns added after the first version, known here or not: views show their values as they are.

    >>> trace = Trace.new({"prompt_length": 1})
    >>> trace.tables["nodes"]["heat_left"] = []
    >>> plain_columns(trace)["nodes"]
    [{'name': 'heat_left', 'label': 'heat left', 'help': '', 'type': 'float'}]
    """
    plain_tables: dict[str, list[dict[str, str]]] = {}
    for table, columns in trace.tables.items():
        table_columns = {column.name: column for column in TABLES.get(table, ())}
        drawn_names = {
            name for name, column in table_columns.items() if column.default is REQUIRED
        } | ENGINE_COLUMNS.get(table, set())
        drawn_names |= {
            name for name in columns_of(table, trace.run) if name not in table_columns
        }  # the method declared them
        plain_tables[table] = [
            {
                "name": name,
                "label": name.removeprefix("term:").replace("_", " "),
                "help": table_columns[name].help if name in table_columns else "",
                "type": table_columns[name].type if name in table_columns else type_of(values),
            }
            for name, values in columns.items()
            if name not in drawn_names
        ]
    return plain_tables


def _order(counts: dict[str, int]) -> list[list[Any]]:
    """[name, count], the greatest first, what is no name of anything last."""
    last = {name: place for place, name in enumerate(OUTCOMES_LAST, 1)}
    return [[name, n] for name, n in sorted(counts.items(), key=lambda pair: (last.get(pair[0], 0), -pair[1]))]


def _statuses(trace: Trace) -> dict[str, int]:
    nodes, steps = trace.tables["nodes"], trace.tables["steps"]
    rows = zip(nodes["status"], nodes["source"], nodes["pool"], strict=True)
    return {
        **{status: nodes["status"].count(status) for status in ("accepted", "rejected", "unreached")},
        "own": sum(bonus >= 0 for bonus in steps["bonus"]),
        "forbidden": sum(value == 1 for value in nodes.get("term:forbidden", ())),
        "sources": sum(status == "accepted" and max(source, pool) >= 0 for status, source, pool in rows),
    }


def _origins(trace: Trace) -> list[list[Any]]:
    nodes = trace.tables["nodes"]
    drafted = Counter(nodes["origin"])
    accepted = Counter(o for o, status in zip(nodes["origin"], nodes["status"], strict=True) if status == "accepted")
    return [[origin, count, accepted[origin]] for origin, count in drafted.items() if origin != "root"]
