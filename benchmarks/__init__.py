"""Commands that measure and stress, with the tests' helpers: ``python -m benchmarks.NAME --help``."""

from argparse import ArgumentParser


def parser_of(name: str, about: str | None) -> ArgumentParser:
    """The parser of the command ``python -m benchmarks.NAME``; ``about`` is its module's docstring."""
    return ArgumentParser(prog=f"python -m benchmarks.{name}", description=(about or "").partition("\n\n")[0])
