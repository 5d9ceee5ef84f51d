"""Tasks: data, model, training and prediction, one file per task."""
