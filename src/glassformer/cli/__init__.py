"""The command `glassformer`: `main.py` dispatches; the file of a command is imported when it is called."""
