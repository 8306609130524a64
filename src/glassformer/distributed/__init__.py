"""Training in several processes with DistributedDataParallel."""
