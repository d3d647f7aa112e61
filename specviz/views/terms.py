"""What the page explains: for every number it shows, one sentence, its formula, and the code that made it.

A run's metrics have theirs in ``decoders.trace.metrics``; here are those of one step, and where each is computed. The
browser adds the numbers (``assets/web/base/terms.js``).
"""

from __future__ import annotations

from typing import Any

from decoders.trace.metrics import METRICS

# key | label | formula | code, and below it the sentence
STEP = """
    step_drafted | Drafted | nodes of the draft tree, the root not counted | decoders/method/drafter.py Drafter.propose
        The tokens that were offered to the model in this step.
    step_accepted | Accepted | drafted tokens on the accepted path | decoders/verifiers/match.py MatchVerifier.__call__
        The drafted tokens that stand; the model's own token behind them does not count.
    step_bonus | The model's own token | its choice after the accepted path | decoders/verifiers/match.py judged
        What the forward wrote besides the draft: it always knows one token more.
    step_written | Written | accepted + 1 | decoders/draft/draft.py emitted_tokens
        The tokens this step added to the output; a stop token ends the run and is not counted.
    step_time | Time | draft_ms + verify_ms + commit_ms | decoders/engine/decoding.py Decoding.__iter__
        Drafting, then one forward of the model with the decision, then keeping what stands.
    step_candidates | Candidates | places that could be copied from | decoders/draft/draft.py Candidates
        The earlier places that the method ranked, losers included.
    step_score | Score | what the method ranks by | decoders/draft/draft.py Candidates
        The highest score wins; the term behind it is a column of the candidate table.
    step_regret | Ranking regret | best − chosen would_accept | decoders/trace/metrics.py fill_would_accept
        What the best of the ranked places would have had accepted more than the chosen one.
"""

# where a run's metrics are computed; the others in decoders/trace/metrics.py measure
COMPUTED = {
    "kv_mb": "decoders/engine/recording.py Run._finish",
    "prefill_ms": "decoders/engine/decoding.py Decoding.prefill",
    "ranking_regret": "decoders/trace/metrics.py regrets",
    "quality_f1": "decoders/trace/quality.py f1",
    "quality_rouge_l": "decoders/trace/quality.py rouge_l",
    "quality_edit": "decoders/trace/quality.py edit_similarity",
}

# what decides a token drawn from a draft model; a run's record names the code of its own drafter and verifier
DRAWN = "decoders/verifiers/residual.py ResidualVerifier.__call__"


def step_terms() -> dict[str, dict[str, str]]:
    """The quantities of one step by key: label, formula, code and sentence."""
    lines = [line.strip() for line in STEP.strip().splitlines()]
    terms = {}
    for head, sentence in zip(lines[::2], lines[1::2], strict=True):
        key, label, formula, code = (part.strip() for part in head.split(" | "))
        terms[key] = {"label": label, "formula": formula, "code": code, "help": sentence}
    return terms


def table() -> dict[str, Any]:
    """All that the browser is told: quantities by key, each with its formula, the formula with a run's parts in braces
    (of metrics: ``decoders.trace.report`` gives the parts), the code and a sentence.

    >>> table()["terms"]["tokens_per_step"]["formula"]
    'mean over steps of (accepted + 1)'
    """
    terms = {
        metric.key: {
            "label": metric.label,
            "formula": metric.formula,
            "code": COMPUTED.get(metric.key, "decoders/trace/metrics.py measure"),
            "help": metric.help,
            "worked": metric.worked,
        }
        for metric in METRICS
    }
    return {"terms": {**terms, **step_terms()}, "verified": {"drawn": DRAWN}}
