"""Mistakes a user can mend: one clear sentence that says what was given, what is allowed and what to do next."""


class UserError(ValueError):
    """Raised for bad input; shown as it is, without a traceback."""


class TooLarge(UserError):
    """More memory is needed than is free."""


def first_line(error: BaseException, limit: int | None = None) -> str:
    """Another library's error for the middle of a sentence: its first line, of it ``limit`` characters.

    >>> first_line(OSError("No space left.\\nat write"))
    'No space left'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:limit].rstrip(".")


def reason_of(fault: BaseException) -> str:
    """The operating system's words for a fault, else its own, in lower case, for the middle of a sentence.

    >>> reason_of(FileNotFoundError(2, "No such file or directory")), reason_of(ValueError())
    ('no such file or directory', 'valueerror')
    """
    return (getattr(fault, "strerror", None) or str(fault) or type(fault).__name__).lower()


def capital(text: str) -> str:
    """A text that begins as a sentence does."""
    return text[:1].upper() + text[1:]


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
        text = capital(text) if first.isalpha() else text  # a file name stays as it is
        return text + ("" if text[-1] in ".!?" else ".")
    return f"The run stopped on an internal error ({name}{': ' + text if text else ''})."
