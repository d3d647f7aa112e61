"""The inspector as a widget in notebooks: what is selected is known to Python, and can be set there."""
