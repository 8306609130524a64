"""Record forward passes: hooks on modules, a tap in attention, and the tape they write to."""
