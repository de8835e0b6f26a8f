"""The built-in filters, one per file."""
