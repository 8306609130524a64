"""Watch a training by reading its run folder: its log, its state, and what the model answers at each snapshot."""
