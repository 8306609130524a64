"""How a forward pass is recorded: hooks on the parts, a tap in attention, and the tape they write to."""
