"""What the registry reads outside its store."""
