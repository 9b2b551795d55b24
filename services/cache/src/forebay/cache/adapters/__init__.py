"""Everything that touches files, mounts and other programs."""
