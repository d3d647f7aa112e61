"""Runs replayed place by place: how far each of several drafters would have come from there."""
