"""Functions of `import harken` that build, search and analyze models, with checked arguments."""
