"""The training loop, optimizers and checkpoints."""
