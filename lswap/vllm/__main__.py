"""`python -m lswap.vllm`."""

import sys

from lswap.vllm.cli import main

if __name__ == "__main__":
    sys.exit(main())
