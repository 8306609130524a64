"""How long a text may be for everything about it to be kept, or to be looked at one layer at a time."""

FULL, LAYERED = 128, 512
"""Tokens of the longest streams captured whole, and of the longest captured a layer at a time."""
