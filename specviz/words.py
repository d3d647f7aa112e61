"""Words for users: what went wrong in one line, numbers with their nouns, large numbers short."""

from __future__ import annotations


def sentence(problem: BaseException) -> str:
    """An error as one sentence: a user's own mistake as it is told, any other with the name of its kind.

    >>> sentence(ValueError("the prompt is empty"))
    'The prompt is empty.'
    """
    name = type(problem).__name__
    if name == "OutOfMemoryError" or isinstance(problem, MemoryError) or "out of memory" in str(problem).lower():
        return "The device ran out of memory: use a shorter prompt, fewer new tokens, or a smaller draft."
    text = " ".join(str(problem).split())[:400]
    if isinstance(problem, ValueError) and text:
        first = text.split()[0]
        text = text[0].upper() + text[1:] if first.isalpha() else text  # a file name stays as it is
        return text + ("" if text[-1] in ".!?" else ".")
    return f"The run stopped on an internal error ({name}{': ' + text if text else ''})."


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "prompt"), counted(2_000, "prompt")
    ('1 prompt', '2,000 prompts')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shortened(count: float) -> str:
    """A large number in three digits.

    >>> shortened(134_515_008), shortened(7.24e9), shortened(5_300)
    ('135M', '7.24B', '5.3k')
    """
    value, unit = (count / 1e9, "B") if count >= 1e9 else (count / 1e6, "M") if count >= 1e6 else (count / 1e3, "k")
    return f"{value:.3g}{unit}"
