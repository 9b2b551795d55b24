"""Long work behind claims: planning and warming."""
