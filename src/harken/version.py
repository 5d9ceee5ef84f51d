"""The version, in a module without imports, which the build and `harken --version` read."""

__version__ = "0.1.0"
