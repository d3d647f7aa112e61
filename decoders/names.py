"""Names that methods take as values and commands offer: here so that a command can start without numpy and torch."""

from __future__ import annotations

from .extra import names_of

AUTO, EAGER, GRAPH = "auto", "eager", "graph"  # engines that need no annex
OWN_WEIGHTS = "fp32"  # of a model's layers, in its own dtype

DESIGNED = "designed"
MASKS = ("ensemble", "decoder", "encoder")  # what a vector of PPD's prompt tokens sees of its group
TREE_KINDS = (DESIGNED, "wide", "naive", "random")  # PPD's trees, a wider search, and fig. 8a's to compare with

BASELINE = "plain"  # the method that drafts nothing: every speedup and every check is against it
USUAL = "pld+h"  # the method of a run that names none
UNDER = "@"  # between a method's name and that of the verifier that judges its drafts
POSITION_BIAS = (  # what is wrong with numbers of another rule, draft or ranking on a recorded run: position bias
    "Judged at the places that were recorded. A run of its own visits other places, so its totals can differ: run "
    "all of it again to know."
)
QUICK = "pld"  # a lossless method that needs nothing: where only the target's own text is wanted, soon
COMPARED_METHODS = (QUICK, USUAL, "adapld")  # what is compared where nothing is chosen
PROMPT_TOKENS = "ppd"  # the kind of part whose trees are designed here (`specviz tree`, the page Trees)

TRACE_FULL = "trace full"  # why a run stopped whose trace could not be saved had it gone on
AFTER_STOP, BEHIND_END = NEVER_JUDGED = "after stop", "behind the output's end"  # of nodes behind the last token


def engine_names() -> tuple[str, ...]:
    """Engines (`--engine`) by name: the core's, and those of annexes and plug-ins."""
    return tuple(dict.fromkeys((AUTO, EAGER, *names_of("engines"), GRAPH)))


def weight_names() -> tuple[str, ...]:
    """Weights (`--weights`) by name: a model's own, and those of fewer bits that annexes and plug-ins bring."""
    return tuple(dict.fromkeys((OWN_WEIGHTS, *names_of("weights"))))
