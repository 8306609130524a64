"""The command `glassformer`: `main.py` dispatches, one file a verb does the talking, imported when called."""
