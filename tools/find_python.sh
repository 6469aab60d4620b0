#!/bin/sh
# Prints the first Python of this machine that is at least 3.11 and at most the newest that the pinned packages know.
for name in "$PYTHON" python3.11 python3.12 python3.13 python3.14 python3 python; do
    [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 || continue
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1; then
        command -v "$name"
        exit 0
    fi
done
echo "smdwidgets needs Python 3.11 or newer: install it, or name it with PYTHON=/path/to/python3" >&2
exit 1
