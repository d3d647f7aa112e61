"""Mistakes a user can mend: one clear sentence that says what was given, what is allowed and what to do next."""


class UserError(ValueError):
    """Raised for bad input; shown as it is, without a traceback."""


class TooLarge(UserError):
    """More memory is needed than is free."""


def first_line(error: BaseException, most: int | None = None) -> str:
    """What another library's error says, for the middle of a sentence: its first line, of it ``most`` characters.

    >>> first_line(OSError("No space left.\\nat write"))
    'No space left'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:most].rstrip(".")
