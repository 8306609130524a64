"""Reports of a run: findings, report, model card, plots, comparison with other runs."""
