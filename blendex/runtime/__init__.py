"""Children that run named functions within a memory budget. Knows nothing of indexes."""
