"""Training text for the parts of a chat model: its own answers to prompts over text that lies on this machine."""
