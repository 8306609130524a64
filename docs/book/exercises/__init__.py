"""One module per exercise: `EXERCISE`, with a reference, a solution, and the mistakes that are often made."""
