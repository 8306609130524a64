"""Export of trained models to other libraries, and prediction with what was exported."""
