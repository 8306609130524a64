"""Scores, one file a task, each from plain arrays or strings to one JSON-ready dict.

Nothing here runs a model or decodes: predictions come in, numbers with intervals go out.
"""
