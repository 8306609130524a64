"""Training: the loop, its state, the optimizer and its schedule, validation.

Only `trainer.py` and `finalize.py` write files. Nothing here draws.
"""
