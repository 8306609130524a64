"""What is said of a run: its findings, the report, the model card, the plots, the comparison with others."""
