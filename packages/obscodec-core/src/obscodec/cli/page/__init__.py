"""The page that ``obscodec inspect --html`` writes: what it prints, and frames, rewards and ends of episodes.

It reads steps as ``opened_steps`` gives them. It never knows how a buffer of an adapter is built inside.
"""

from obscodec.cli.page.page import page_of, target_of, write_page

__all__ = ["page_of", "target_of", "write_page"]
