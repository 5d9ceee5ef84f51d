"""Raw files to examples: frozen records with the place they came from."""
