"""What is on disk: run folders, sealed folders in them, checkpoints, the model folder; read and written here alone."""
