"""ContextCite's measures of rankings of an answer's sources: LDS and top-k drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from decoders.study.attribute.evidence import evidence_sources, sentences
from decoders.study.attribute.verbatim import quotations

from ..experiments.experiment import Row

if TYPE_CHECKING:
    from decoders import Prompt, Target

TOP = (1, 2, 3)


def ablations(target: Target, method: str, params: Mapping[str, Any], prompt: Prompt, new: int) -> Iterator[Row]:
    """A row per ranking of the sources (a sparse fit over subsets, one left out, words copied) and number left out."""
    from decoders import record
    from decoders.study.attribute.ablations import ablate, lds, logp_without, sparse_fit, top_drop
    from decoders.study.attribute.without import ReadAnswer

    trace = record(target, prompt, method, params, max_new_tokens=new)
    sources = evidence_sources(trace)
    if len(sources) < 2 or not sentences(trace):
        return
    answer = ReadAnswer(target, trace.prompt_ids, trace.output_ids)
    read, tokens = ablate(answer, sources), len(trace.output_ids)
    logp, homes = read.logp.sum(1), [source.home for source in sources]
    copied = np.zeros(len(sources))
    for link in quotations(trace):
        if link.home in homes:
            copied[homes.index(link.home)] += len(link)
    rankings = {
        "sparse fit of subsets": sparse_fit(read.masks[: read.fit_rows], logp[: read.fit_rows], tokens)[0],
        "one left out": np.array([(answer.logp - logp_without(answer, [source])).sum() for source in sources]),
        "words copied": copied,
    }
    test_masks, test_logp = read.masks[read.fit_rows :], logp[read.fit_rows :]
    for series, weights in rankings.items():
        score = lds(test_masks @ weights, test_logp)
        for k in TOP:
            if k <= len(sources):
                drop = top_drop(answer, sources, weights.tolist(), k) / tokens
                yield {"series": series, "param:k": str(k), "lds": score, "drop": drop}
