"""The inspector's sentences outside of a browser: its own modules, run by an embedded engine."""
