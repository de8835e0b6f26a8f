"""What an item is: its shape, dtype and bytes, whoever holds it."""
