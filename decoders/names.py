"""Names that methods take as values and commands offer: here so that a command can start without numpy and torch."""

from __future__ import annotations

DESIGNED = "designed"
TREE_KINDS = (DESIGNED, "wide", "naive", "random")  # PPD's trees, a wider search, and fig. 8a's to compare with
