"""Run public programs written for smdebug, and compare both libraries on each."""
