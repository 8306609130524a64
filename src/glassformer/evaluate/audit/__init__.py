"""Faults of data that training does not stop at: probable label errors, duplicates, leaks, pairs that do not match."""
