"""What a cluster holds for our jobs, folded from raw facts, and what follows from it. Pure."""
