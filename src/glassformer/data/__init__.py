"""From files, archives and generators to text, and from text to batches of ids.

`datasets.local_files.load_text_data` reads every data set; each has a file of its own. Import from the modules:
this package brings nothing in by itself, so that a command that needs one of them does not pay for the rest.
"""
