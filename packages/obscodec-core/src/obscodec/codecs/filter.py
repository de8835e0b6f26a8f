"""Filter: a reversible change of an item before it is encoded; the layout determines the size of its output."""

from abc import abstractmethod
from dataclasses import dataclass

from obscodec.codecs.stage import Stage
from obscodec.layout import Layout, Rows


@dataclass(frozen=True)
class Filter(Stage):
    """Turns items of its ``layout`` into items of the layout ``target``, and back without loss.

    A constructor refuses a layout that the filter can't take, with DTypeError or ShapeError.
    """

    @property
    @abstractmethod
    def target(self) -> Layout:
        """The layout of the output."""

    @abstractmethod
    def apply(self, rows: Rows, out: Rows) -> None:
        """Fill ``out``, ``u8[n, target.nbytes]``, from ``rows``, ``u8[n, layout.nbytes]``; both contiguous."""

    @abstractmethod
    def undo(self, rows: Rows, out: Rows) -> None:
        """The inverse of :meth:`apply`: fill ``out``, ``u8[n, layout.nbytes]``, from ``rows``.

        Raises:
            CorruptStream: :meth:`apply` does not write such ``rows``.
        """
