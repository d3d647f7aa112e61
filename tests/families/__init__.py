"""Tiny random models of many families, windows, rotary scalings and head groupings, each compared with generate().

``python -m tests.families`` runs them all and prints a table; ``tests/test_families.py`` runs a few in the suite.
"""
