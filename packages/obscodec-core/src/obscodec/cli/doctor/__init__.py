"""``obscodec doctor``: how data of an environment, a file or a snapshot compress, before a training relies on it.

It fills real buffers with samples, and measures them. It never knows how a buffer of an adapter is built inside.
"""

from obscodec.cli.doctor.command import doctor
from obscodec.cli.doctor.report import compact_table

__all__ = ["compact_table", "doctor"]
