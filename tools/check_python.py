"""Check the Python version and the venv module before `make` installs anything.

Runs on any Python 3. Prints one line and exits with code 1 if something is missing.
"""

import sys

if sys.version_info < (3, 11):
    sys.exit(
        "harken: Python 3.11 or newer is required (got %d.%d); "
        "install it and run: make PYTHON=python3.11" % sys.version_info[:2]
    )
try:
    import ensurepip  # noqa: F401
    import venv  # noqa: F401
except ImportError:
    sys.exit("harken: this Python has no venv module; on Debian: apt install python3-venv")
