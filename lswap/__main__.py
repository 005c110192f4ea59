"""`python -m lswap`: the same as `lswap`. Read `lswap.cli`."""

import sys

from lswap.cli import main

if __name__ == "__main__":
    sys.exit(main())
