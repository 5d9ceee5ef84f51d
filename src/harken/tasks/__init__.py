"""Where the data half meets the model half: one file a task."""
