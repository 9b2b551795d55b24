"""Long work of the registry, behind claims."""
