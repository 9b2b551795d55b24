"""What the cache knows and decides: values and pure functions, no I/O."""
