"""The compiled loops over frames and their ids."""
