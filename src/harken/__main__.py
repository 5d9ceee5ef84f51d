"""`python -m harken`."""

import sys

from harken.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
