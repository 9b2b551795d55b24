"""Pure values and functions; imports no clock, no log, no file."""
