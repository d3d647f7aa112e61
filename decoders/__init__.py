"""specviz's decoding backend: draft, verify, record.

>>> from decoders import load_target, Prompt, record                            # doctest: +SKIP
>>> target = load_target("assets/demo/target")                                  # doctest: +SKIP
>>> trace = record(target, Prompt.from_text(target.tokenizer, "…"), "pld+h")    # doctest: +SKIP
>>> trace.run["metrics"]["tokens_per_step"]                                     # doctest: +SKIP

Names are imported when first used, so that a trace opens where torch is not installed.
"""

from __future__ import annotations

import importlib
from typing import Any

from .imports import nothing_collected
from .method.part import register_kinds_from

_HOMES = {
    "Decoding": "engine.decoding", "Step": "engine.decoding",
    "decode": "engine.decoding", "generate": "engine.decoding",
    "Run": "engine.recording", "record": "engine.recording",
    "recording": "recorder.recorder", "Recorder": "recorder.recorder",
    "divergence": "study.judge.divergences", "Divergence": "study.judge.divergences",
    "Prompt": "prompt.prompt", "Segment": "prompt.prompt", "Grammar": "prompt.grammar",
    "Sampling": "draft.settings",
    "Target": "model.target_model.target", "load_target": "model.target_model.load",
    "Trace": "trace.trace", "load": "trace.files", "save": "trace.files", "TraceError": "trace.tables",
    "Method": "method.method", "Drafter": "method.drafter",
    "Draft": "draft.draft", "Needs": "draft.needs", "Candidates": "draft.draft",
    "Origin": "trace.origins",
    "methods": "drafters", "find_method": "drafters", "register": "drafters",
    "Verifier": "verifiers.verifier", "VerifierCard": "verifiers.verifier",
    "find_verifier": "drafters",
    "Extra": "extra", "Command": "extra",
    "UserError": "errors",
}  # fmt: skip


def _register_methods() -> None:
    from .drafters import methods

    methods()


register_kinds_from(_register_methods)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'decoders' has no attribute {name!r}")
    with nothing_collected():
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
