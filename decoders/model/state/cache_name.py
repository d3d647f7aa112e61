"""The name by which a model's code takes its cache: transformers 5.24 calls ``cache`` what was ``past_key_values``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

NEW, OLD = "cache", "past_key_values"


def cache_input(module: Any, cache: Any) -> dict[str, Any]:
    """A module's cache as its forward takes it.

    >>> class Stock:
    ...     def forward(self, input_ids, past_key_values=None): ...
    >>> cache_input(Stock(), None)
    {'past_key_values': None}
    """
    return {cache_name(type(module).forward): cache}


@lru_cache(maxsize=64)
def cache_name(function: Callable[..., Any]) -> str:
    """The parameter of a function that takes a cache."""
    return NEW if NEW in inspect.signature(function).parameters else OLD


def takes_cache(function: Callable[..., Any], *others: str) -> bool:
    """True for a function that takes a cache, and parameters of these names."""
    names = inspect.signature(function).parameters
    return {cache_name(function), *others} <= names.keys()


def cache_in(values: Mapping[str, Any]) -> Any:
    """The cache among a forward's inputs or outputs; None where there is none."""
    return values[NEW] if NEW in values else values.get(OLD)
