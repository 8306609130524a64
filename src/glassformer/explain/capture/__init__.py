"""How a forward pass is recorded: hooks on the parts, an observer in attention, and the tape they write to."""
