"""The page's explanations: for every number it shows, one sentence, its formula, and the code that made it.

A run's metrics have theirs in ``decoders.trace.metrics``; here are those of one step, and where each is computed. The
browser adds the numbers (``assets/web/base/terms.js``).
"""

from __future__ import annotations

from typing import Any

from decoders.folders import ASSETS
from decoders.names import POSITION_BIAS
from decoders.trace.metrics import METRICS
from specviz import __version__

# where a run's metrics are computed; the others in decoders/trace/metrics.py measure
COMPUTED_TERMS = {
    "kv_mb": "decoders/engine/recording.py Run._finish",
    "prefill_ms": "decoders/engine/decoding.py Decoding.prefill",
    "prepare_ms": "decoders/engine/decoding.py Decoding.prefill",
    "ranking_regret": "decoders/trace/metrics.py regrets",
    "ranking_cost": "decoders/trace/oracle.py oracle",
    "quality_f1": "decoders/trace/quality.py f1",
    "quality_rouge_l": "decoders/trace/quality.py rouge_l",
    "quality_edit": "decoders/trace/quality.py edit_similarity",
}

# what decides a token drawn from a draft model; a run's record names the code of its own drafter and verifier
RESIDUAL_RULE = "decoders/verifiers/residual.py ResidualVerifier.__call__"

CITATION = f"""@software{{specviz,
  author = {{{{The specviz authors}}}},
  title = {{specviz: see how speculative decoding drafts, accepts and rejects, step by step}},
  version = {{{__version__}}},
  year = {{2026}},
  note = {{Python package specviz-drafts}},
}}"""  # as CITATION.cff


def step_terms() -> dict[str, dict[str, str]]:
    """The quantities of one step by key: label, formula, code and sentence."""
    lines = [line.strip() for line in (ASSETS / "terms.txt").read_text(encoding="utf-8").splitlines()[1:]]
    heads = [[part.strip() for part in head.split(" | ")] for head in lines[::2]]
    names = ("label", "formula", "code", "help")
    return {
        key: dict(zip(names, (*tail, text), strict=True)) for (key, *tail), text in zip(heads, lines[1::2], strict=True)
    }


def table() -> dict[str, Any]:
    """All that the browser is told: quantities by key, each with its formula, the formula with a run's parts in braces
    (of metrics: ``decoders.trace.report`` gives the parts), the code and a sentence; and how this program is cited.

    >>> table()["terms"]["tokens_per_step"]["formula"]
    'mean over steps of (accepted + 1)'
    """
    terms = {
        metric.key: {
            "label": metric.label,
            "formula": metric.formula,
            "code": COMPUTED_TERMS.get(metric.key, "decoders/trace/metrics.py measure"),
            "help": metric.help,
            "worked": metric.worked,
        }
        for metric in METRICS
    }
    return {
        "terms": {**terms, **step_terms()},
        "verified": {"drawn": RESIDUAL_RULE},
        "visited": POSITION_BIAS,
        "citation": CITATION,
    }
