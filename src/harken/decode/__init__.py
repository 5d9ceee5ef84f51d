"""Search for sequences in a model's scores; state is an argument, so one search serves all."""
