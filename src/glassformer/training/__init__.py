"""Training: the loop, its state, the optimizer and its schedule, validation. Nothing here prints, draws or writes."""
