"""What `smdwidgets demo` shows: a small real training with two planted faults, and the notebook that looks at it."""
