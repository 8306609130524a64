"""One step of learning: the loss of an answer, its gradients step by step, and the update of the weights."""
