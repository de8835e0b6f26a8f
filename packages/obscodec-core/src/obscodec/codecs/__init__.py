"""Items to streams and back."""
