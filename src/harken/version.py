"""The version, where neither the build nor `harken --version` needs to import anything else."""

__version__ = "0.1.0"
