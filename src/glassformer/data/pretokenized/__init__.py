"""Text of any size tokenized ahead of training: shards of token ids on disk, memory-mapped while training."""
