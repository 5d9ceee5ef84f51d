"""Check the Python version and the venv module before anything is installed."""

import sys

if sys.version_info < (3, 11):
    sys.exit(
        "harken: expected Python 3.11 or newer, got %d.%d; "
        "install it and run: make PYTHON=python3.11" % sys.version_info[:2]
    )
try:
    import ensurepip  # noqa: F401
    import venv  # noqa: F401
except ImportError:
    sys.exit("harken: this Python has no venv module; on Debian: apt install python3-venv")
