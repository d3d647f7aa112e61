"""The inspector's sentences outside of a browser: its own modules, run by Node.js."""
