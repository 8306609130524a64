"""Training: the loop, its state, the optimizer and its schedule, validation.

Only `trainer.py`, `finalize.py` and `multi_seed.py` write files. Nothing here draws.
"""
