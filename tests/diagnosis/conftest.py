"""Train networks with one thread.

They are too small for more, and tests run side by side.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
