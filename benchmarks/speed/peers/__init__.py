"""The implementations that are measured: one small file each, run as a process in an environment of its own.

What they all share is in `training.py` (the loop of those that are torch modules) and `serving.py` (how the harness
talks to them). They import numpy and what they are about; only `ours.py` imports glassformer.
"""
