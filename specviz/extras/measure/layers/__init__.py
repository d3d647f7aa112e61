"""Layers that a text did not need."""
