"""Names that methods take as values and commands offer: here so that a command can start without numpy and torch."""

from __future__ import annotations

DESIGNED = "designed"
MASKS = ("ensemble", "decoder", "encoder")  # what a vector of PPD's prompt tokens sees of its group
TREE_KINDS = (DESIGNED, "wide", "naive", "random")  # PPD's trees, a wider search, and fig. 8a's to compare with
