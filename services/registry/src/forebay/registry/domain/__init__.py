"""Pure functions and frozen values: what events mean for lineage. No I/O, no clock."""
