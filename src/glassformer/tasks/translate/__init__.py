"""Translation: what the task does is in `task.py`, how its runs are told in `telling.py`."""
