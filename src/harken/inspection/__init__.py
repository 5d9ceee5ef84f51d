"""Attention and activations of models: recording, analysis, ablation, patching."""
