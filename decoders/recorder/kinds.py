"""The ways in which transformers' generate() drafts, each as the run's record describes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from decoders.draft.terms import Term
from decoders.trace.origins import DRAFTER, MAIN, Origin
from decoders.verifiers.residual import NODE_TERMS
from decoders.verifiers.sampling import Sampling

NGRAM = Term("ngram", "n-gram", "Last tokens of the text that stand before the place, too, as far as compared.", 0, 10)
RATIO_TERMS = NODE_TERMS[:2]  # the number that decided is drawn inside generate(), which does not tell it
LOOP = "transformers/generation/utils.py GenerationMixin."
NO_ROOM = "no more token may be drafted"
WARPERS = {"TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper"}  # what Sampling does
PROCESSORS = {
    "name": "logits_processors", "label": "Logits processors",
    "help": "They changed the logits by which tokens were chosen. Probabilities and ranks are the model's own, before "
    "them: a token that is not its first choice may be theirs.",
}  # fmt: skip
FIRST = "the first forward reads the prompt; this drafter needs its hidden states"


@dataclass(frozen=True, slots=True)
class CallKind:
    """One way of drafting: its name and title in the record, and why it has no draft where it has none."""

    name: str
    title: str
    summary: str
    empty: str
    origin: Origin = DRAFTER
    settings: tuple[str, ...] = ()  # of the generation config
    terms: tuple[Term, ...] = ()
    node_terms: tuple[Term, ...] = RATIO_TERMS


PLAIN = CallKind("generate", "generate()", "Plain decoding: one token per forward.", "generate() ran without a drafter")
LOOKUP = CallKind(
    "generate:lookup", "generate(): prompt lookup", "Copies what followed the last tokens at an earlier place.",
    "the last tokens stand nowhere before", MAIN, ("prompt_lookup_num_tokens", "max_matching_ngram_size"), (NGRAM,), (),
)  # fmt: skip
EARLY = CallKind(
    "generate:early-exit", "generate(): early exit", "The model's own first layers write ahead, and all of them check.",
    NO_ROOM, settings=("assistant_early_exit",),
)  # fmt: skip

# by the name of transformers' class; a class of a later version is an assistant that is not known by name
KINDS = {
    "PromptLookupCandidateGenerator": LOOKUP,
    "AssistedCandidateGenerator": CallKind(
        "generate:assistant", "generate(): assistant model", "A smaller model writes ahead, and the model checks it.",
        NO_ROOM, settings=("assistant_ensemble_weight",),
    ),
    "AssistedCandidateGeneratorDifferentTokenizers": CallKind(
        "generate:assistant-text", "generate(): assistant with another tokenizer",
        "A model with another tokenizer writes ahead; its text is split anew into the model's tokens.",
        "the assistant's text gave no new token",
    ),
    "UniversalSpeculativeDecodingGenerator": CallKind(
        "generate:universal", "generate(): universal assistant",
        "A model with another tokenizer draws ahead over the tokens that both have.", NO_ROOM,
    ),
    "EarlyExitCandidateGenerator": EARLY,
    "MTPCandidateGenerator": CallKind(
        "generate:mtp", "generate(): multi-token prediction", "Layers trained with the model guess the next tokens.",
        FIRST,
    ),
    "DFlashTokenCandidateGenerator": CallKind(
        "generate:dflash", "generate(): DFlash", "A model drafts a whole block at once.", FIRST
    ),
    "SinglePositionMultiTokenCandidateGenerator": CallKind(
        "generate:shared-keys", "generate(): assistant on shared keys",
        "A small model reads the model's keys and values and writes ahead.", FIRST,
    ),
}  # fmt: skip


def kind_of(generator: Any) -> CallKind:
    """The kind of a candidate generator of transformers."""
    name = type(generator).__name__
    unknown = CallKind(
        f"generate:{name[:60]}", f"generate(): {name}", f"transformers' {name}.", "it gave no candidates"
    )
    return KINDS.get(name, unknown)


def describe(kind: CallKind, generator: Any, config: Any, processors: Iterable[str] = ()) -> dict[str, Any]:
    """A run's record of its drafting: the parts that ``engine.recording.describe`` gives of a method. ``processors``:
    the call's logits processors by name.
    """
    owner = None if generator is None else next(c for c in type(generator).__mro__ if "get_candidates" in vars(c))
    drafts = "" if owner is None else f"{owner.__module__.replace('.', '/')}.py {owner.__qualname__}.get_candidates"
    about = {
        "method": {
            "name": kind.name, "title": kind.title, "paper": "", "summary": kind.summary,
            "lossless": getattr(config, "assistant_ensemble_weight", None) is None,
            "params": _settings(kind, generator, config), "resolved": {}, "controls": [],
            "code": {"drafts": drafts, "verifies": LOOP + ("_sample" if generator is None else "_assisted_decoding")},
        },
        "origins": [] if generator is None else [asdict(kind.origin)],
        "terms": [asdict(term) for term in kind.terms],
        "node_terms": [asdict(term) for term in (() if generator is None else kind.node_terms)],
        "step_terms": [],
    }  # fmt: skip
    note_processors(about["method"], [name for name in processors if name not in WARPERS])
    return about


def note_processors(method: dict[str, Any], names: Sequence[str]) -> None:
    """Name a call's logits processors among the settings of its method's record."""
    if names:
        method["params"][PROCESSORS["name"]] = ", ".join(names)
        method["controls"] = [*method["controls"], PROCESSORS]


def _settings(kind: CallKind, generator: Any, config: Any) -> dict[str, Any]:
    """The settings that decide what is drafted, as far as they are plain values."""
    values = {name: getattr(config, name, None) for name in kind.settings}
    assistant = getattr(generator, "assistant_model", None)
    if assistant is not None and kind is not EARLY:
        values["assistant"] = model_name(assistant)
    for name in ("num_assistant_tokens", "assistant_confidence_threshold", "num_mtp_layers", "block_size"):
        values[name] = getattr(generator, name, None)
    draft_config = getattr(generator, "assistant_generation_config", None)
    values["num_assistant_tokens_schedule"] = getattr(draft_config, "num_assistant_tokens_schedule", None)
    plain = {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}
    return {name: int(v) if isinstance(v, float) and v.is_integer() else v for name, v in plain.items()}


def sampling_of(config: Any, seed: int = 0) -> Sampling:
    """The sampling that a generation config asks for."""
    if not config.do_sample:
        return Sampling()
    temperature, top_k, top_p = (getattr(config, name, None) for name in ("temperature", "top_k", "top_p"))
    return Sampling(float(temperature or 1.0), int(top_k or 0), float(top_p or 1.0), seed)


def model_name(model: Any) -> str:
    """A model's name as a record keeps it: the last part of where it was loaded from, else its class."""
    path = str(getattr(model.config, "_name_or_path", "") or "").rstrip("/\\")
    hub = path.count("/") == 1 and not path.startswith((".", "/", "~"))
    name = path if hub else path.replace("\\", "/").rpartition("/")[2]
    return (name or type(model).__name__)[:120]
