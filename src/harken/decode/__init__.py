"""Search for sequences with a model: greedy search, beam search, sampling, CTC and both jointly."""
