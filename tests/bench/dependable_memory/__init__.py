"""A benchmark of memories in which later inputs change what earlier ones mean."""
