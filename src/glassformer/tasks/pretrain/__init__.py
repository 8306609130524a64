"""Pretraining: what the task does is in `task.py`, which words are hidden in `masking.py`, how it is told in `telling.py`."""
