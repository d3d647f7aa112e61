"""Runs found by their content: an index of prompts, outputs and rejected tokens, a search of it, a command."""
