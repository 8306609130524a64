"""Attribute predictions to input words, by leave-one-out or integrated gradients."""
