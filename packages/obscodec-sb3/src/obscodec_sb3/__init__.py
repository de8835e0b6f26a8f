"""Compressed replay buffers for Stable-Baselines3."""
