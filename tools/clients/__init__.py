"""Run public programs written for smdebug, and compare smdwidgets with smdebug on each."""
