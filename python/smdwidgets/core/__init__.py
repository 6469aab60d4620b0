"""Import paths as smdebug has them; each module here hands on the one that does the work."""
