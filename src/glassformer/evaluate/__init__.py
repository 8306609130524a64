"""Scores with intervals, baselines and tests of significance, from predictions; and the audit of data.

Nothing here runs a model or decodes.
"""
