"""Long work behind claims."""
