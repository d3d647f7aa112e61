"""Mistakes a user can mend: one clear sentence that says what was given, what is allowed and what to do next."""


class UserError(ValueError):
    """Raised for bad input; shown as it is, without a traceback."""
