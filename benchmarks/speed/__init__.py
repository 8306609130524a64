"""How fast glassformer is, beside others, on the machine at hand: `python -m benchmarks.speed --help`."""
