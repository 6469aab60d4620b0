"""`python -m smdwidgets` is the command `smdwidgets`."""

import sys

from smdwidgets.cli import main

if __name__ == "__main__":
    sys.exit(main())
