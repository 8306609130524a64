"""Change numbers of a forward pass and see what follows: edits as text, applied through the tap of `trace`."""
