"""What we ask of the operating system and of Python: pages of memory, threads, locks."""
