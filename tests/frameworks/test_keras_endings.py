"""A script with Keras or a tape leaves a complete run, however it ends."""

from endings.scripts import HOLDS, KERAS, TAPE
from endings.table import smdebug, table  # noqa: F401  # a fixture

test_run_is_complete = table(KERAS)
test_run_of_a_tape_is_complete = table(TAPE, {hold: HOLDS[hold] for hold in ("a local of a function that returned",)})
