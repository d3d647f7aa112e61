"""Recorded runs as a static site, from disk or from any static host."""
