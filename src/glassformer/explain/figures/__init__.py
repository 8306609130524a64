"""Draw figures of explanations for papers and slides, with matplotlib."""
