"""The loop that turns batches and a loss into weights, and the files that let it be resumed."""
