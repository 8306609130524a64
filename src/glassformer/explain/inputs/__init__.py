"""Encode the text of a request as its task does, and decode the output of the model."""
