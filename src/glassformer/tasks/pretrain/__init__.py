"""Pretraining by masked language modelling: `task.py` defines the task, `reporting.py` how its runs are reported."""
