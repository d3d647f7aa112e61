"""CASD fig. 3: how long does retrieval take in a pool of up to a million tokens?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from specviz.experiments.experiment import Axis, Experiment, Line
from specviz.experiments.quantities import Quantity

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LOOKUPS, PASSAGE, VOCABULARY = 200, 500, 2_000


def measure(_: Any, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
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
    started = time.perf_counter()
    index = PoolIndex(pool, casd.longest_suffix)
    built = time.perf_counter() - started
    times = []
    for start in random.integers(0, size - 20, LOOKUPS):
        began = time.perf_counter()
        match = index.find(tokens[start : start + 20], casd.shortest_suffix, casd.max_hits)
        if match.length:
            index.continuations(match.ends, casd.depth, casd.nodes)
        times.append(time.perf_counter() - began)
    yield {"retrieval_ms": float(np.median(times)) * 1e3, "index_ms": built * 1e3}


EXPERIMENT = Experiment(
    "casd-fig3",
    "Retrieval time against the pool's size",
    paper="casd",
    figure="fig. 3",
    question="Does looking up a draft get slower in a longer context?",
    finding="Between 0 and 100 ms up to a million tokens: little beside the forward.",
    note="The figure's values are drawn in the paper, not printed. No model runs here; the pool is made up.",
    lines=(Line("CASD's pool", "casd"),),
    axes=(Axis("pool_tokens", SIZES, "tokens in the pool", log=True),),
    metrics=("retrieval_ms", "index_ms"),
    measure=measure,
    own=(
        Quantity("retrieval_ms", "Retrieval", "median time of a lookup", "ms", "Suffix found, continuations merged."),
        Quantity("index_ms", "Building the index", "time to index the pool", "ms", "Once per context."),
    ),
)
