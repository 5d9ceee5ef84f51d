"""Models: token ids, audio frames or images -> logits."""
