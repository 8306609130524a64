"""The command `glassformer`: `main.py` dispatches, one file per command, imported when called."""
