"""However a training script ends, and however it holds its hook, it leaves a complete run."""

from endings.scripts import NUMPY
from endings.table import smdebug, table  # noqa: F401  # a fixture

test_run_is_complete = table(NUMPY)
