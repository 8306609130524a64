"""Generate token ids from a trained model by beam search or sampling, through one incremental decoder."""
