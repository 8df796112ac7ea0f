"""Values that the templates of pages show."""
