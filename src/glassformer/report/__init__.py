"""Everything told about a run: progress, the report, the model card, the plots, the diagnosis."""
