"""The experiment of `harken demo`, from generated data to the report."""
