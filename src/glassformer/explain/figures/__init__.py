"""Pictures of explanations for papers and slides, drawn by matplotlib."""
