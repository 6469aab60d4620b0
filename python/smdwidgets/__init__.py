"""See why a training run went wrong: every saved tensor at every step, in a notebook cell, while it trains."""
