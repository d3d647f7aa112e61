"""Names that methods take as values and commands offer: here so that a command can start without numpy and torch."""

from __future__ import annotations

DESIGNED = "designed"
TREE_KINDS = (DESIGNED, "naive", "random")  # PPD's trees, and those of fig. 8a to compare with
