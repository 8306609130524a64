"""From files, archives and generators to text, and from text to batches of ids.

`datasets.load_text_data` is the one door in; each data set has a file of its own. Import from the modules:
this package brings nothing in by itself, so that a command that needs one of them does not pay for the rest.
"""
