"""The built-in codecs, one wire format per file."""
