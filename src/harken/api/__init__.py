"""The functions of `import harken` that build, search and analyze models.

Arguments are checked here, and everything wrong is one `UserError`. Layers and heads are counted
from 1, as everywhere in Harken.
"""
