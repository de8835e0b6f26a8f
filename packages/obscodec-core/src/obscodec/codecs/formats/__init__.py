"""One byte format a file."""
