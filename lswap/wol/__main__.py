"""`python -m lswap.wol`."""

import sys

from lswap.wol.cli import main

if __name__ == "__main__":
    sys.exit(main())
