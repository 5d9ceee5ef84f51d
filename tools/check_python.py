"""Say in one line what is missing before anything is installed; runs on any Python 3."""

import sys

if sys.version_info < (3, 11):
    sys.exit(
        "harken: found Python %d.%d, wanted 3.11 or newer; "
        "install one and run: make PYTHON=python3.11" % sys.version_info[:2]
    )
try:
    import ensurepip  # noqa: F401
    import venv  # noqa: F401
except ImportError:
    sys.exit(
        "harken: found a Python without venv, wanted one with it; Debian: apt install python3-venv"
    )
