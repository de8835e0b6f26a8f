"""``obscodec doctor``: how data of an environment, a file or a snapshot compress, before a training relies on it."""

from obscodec.cli.doctor.command import doctor

__all__ = ["doctor"]
