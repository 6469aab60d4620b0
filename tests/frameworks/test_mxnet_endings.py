"""However a script that trains with this framework ends, it leaves a complete run."""

from endings.scripts import MODEL_HOLDS, MXNET
from endings.table import smdebug, table  # noqa: F401  # a fixture

test_run_is_complete = table(MXNET, MODEL_HOLDS)
