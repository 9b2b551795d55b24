"""Real servers on free ports, as async context managers."""
