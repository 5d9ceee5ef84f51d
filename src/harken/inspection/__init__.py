"""Looking inside a model that knows nothing of being looked at."""
