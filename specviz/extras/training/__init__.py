"""Training: the bundled target from nothing, and parts for any target."""
