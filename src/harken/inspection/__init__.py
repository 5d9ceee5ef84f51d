"""Record, analyze, ablate and patch the attention and activations of models."""
