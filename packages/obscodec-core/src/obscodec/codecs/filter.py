"""Filter: a reversible change of an item before it is encoded, whose output size follows from the layout."""

from abc import abstractmethod
from dataclasses import dataclass

from obscodec.codecs.stage import Stage
from obscodec.layout import Layout, Rows


@dataclass(frozen=True)
class Filter(Stage):
    """Turns items of the layout ``source`` into items of the layout ``target``, and back without loss.

    A constructor refuses a layout that the filter can't take, with DTypeError or ShapeError.
    """

    @property
    def source(self) -> Layout:
        """The layout that the filter takes."""
        return self.layout

    @property
    @abstractmethod
    def target(self) -> Layout:
        """The layout that the filter gives."""

    @abstractmethod
    def apply(self, rows: Rows, out: Rows) -> None:
        """Fill ``out``, ``u8[n, target.nbytes]``, from ``rows``, ``u8[n, source.nbytes]``; both contiguous."""

    @abstractmethod
    def undo(self, rows: Rows, out: Rows) -> None:
        """The inverse of :meth:`apply`: fill ``out``, ``u8[n, source.nbytes]``, from ``rows``.

        Raises:
            CorruptStream: ``rows`` are not what :meth:`apply` writes.
        """
