"""Measurements and figures of CASD's recipes beside runs: lookups in pools of any size, the best threshold."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from specviz.groups import group

from ..experiments.experiment import Row

LOOKUPS, PASSAGE, VOCABULARY = 200, 500, 2_000


def lookups(target: Any, method: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Times a lookup (find and merge, CASD's settings) in a pool of made-up passages; the median of 200 lookups.

    Token ids are drawn by Zipf's law, as words are; what is looked up are 20 tokens cut out of the pool.
    """
    from decoders.drafters.casd import CasdParams
    from decoders.prompt.pool import PoolIndex
    from decoders.prompt.prompt import Pool

    size, casd = int(params["pool_tokens"]), CasdParams()
    random = np.random.default_rng(size)
    weights = 1 / np.arange(1, VOCABULARY + 1)
    tokens = random.choice(VOCABULARY, size, p=weights / weights.sum()).astype(np.int64)
    pool = Pool(tokens, tuple(range(0, size, PASSAGE)), None, "made-up passages")
    start_s = time.perf_counter()
    index = PoolIndex(pool, casd.longest_suffix)
    build_seconds = time.perf_counter() - start_s
    times = []
    for start in random.integers(0, size - 20, LOOKUPS):
        began = time.perf_counter()
        match = index.find(tokens[start : start + 20], casd.shortest_suffix, casd.max_hits)
        if match.length:
            index.continuations(match.ends, casd.depth, casd.nodes)
        times.append(time.perf_counter() - began)
    yield {"retrieval_ms": float(np.median(times)) * 1e3, "index_ms": build_seconds * 1e3}


SWEEP = "CASD, δ swept"


def oracles(rows: list[Row]) -> list[Row]:
    """The sweep hidden, and its best δ per task (Oracle-D) and per prompt (Oracle-S) as series of their own.

    Of the δ that have a score of every prompt; of equals the largest, which is the nearest to plain decoding.
    """
    visible_rows = [{**row, "role": "hidden"} if row["series"] == SWEEP else row for row in rows]
    sweep_rows = [row for row in visible_rows if row["series"] == SWEEP and row.get("quality") is not None]

    def best(rows: Sequence[Row]) -> str:
        scores = group((row["param:delta"], row["quality"]) for row in rows)
        prompt_count = max(map(len, scores.values()))
        whole = [delta for delta in sorted(scores, key=float, reverse=True) if len(scores[delta]) == prompt_count]
        return max(whole, key=lambda delta: sum(scores[delta]))

    oracle_rows = []
    for name, column in (("Oracle-D", "category"), ("Oracle-S", "prompt")):
        for group_rows in group((row[column], row) for row in sweep_rows).values():
            best_delta = best(group_rows)
            oracle_rows += [
                {**r, "series": name, "role": "derived"} for r in group_rows if r["param:delta"] == best_delta
            ]
    return visible_rows + oracle_rows
