"""What every Forebay service stands on; no domain word is in here."""
