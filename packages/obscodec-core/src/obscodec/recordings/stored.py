"""Arrays as they lie in files, read when they are asked for."""

import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.errors import ObscodecError, SourceError
from obscodec.installing import optional

Array = npt.NDArray[np.generic]
MINARI = "main_data.hdf5"  # the file of a data set of Minari
_ALL = 1 << 62  # more items than any array has
_OBJECTS = "its items are Python objects or differ in length, give all items one shape and a dtype of numbers"
_PICKLED = "its items are Python objects, which only pickle loads, and a pickle may run any program: save numbers"
_DAMAGED = "its bytes are damaged: restore the file"


class Stored(NamedTuple):
    """Items of an array in an open file, whose content is a mapping from names to arrays that read slices."""

    file: Path
    content: Any
    name: str
    begin: int = 0
    end: int = _ALL

    def read(self, n: int = _ALL) -> Array:
        """The first ``n`` items; of a single value, an array without an axis.

        Raises:
            SourceError: they can't be read; the text is the reason.
            MissingPackage: Pillow, for the JPEG images of Minari, is not installed.
        """
        try:
            array = self.content[self.name]
            if not array.shape:
                return np.empty(())
            items = array[self.begin : min(self.begin + n, self.end)]
            if self.file.name == MINARI and len(items) and all(map(_is_jpeg, items)):
                image = optional("PIL.Image")
                items = np.stack([np.asarray(image.open(BytesIO(item), formats=["JPEG"])) for item in items])
            if items.dtype.hasobject:
                raise SourceError(_OBJECTS)
            return np.asarray(items)
        except ObscodecError:
            raise
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise SourceError(_DAMAGED) from error
        except Exception as error:  # of numpy, h5py, zarr or Pillow
            text = str(error) if isinstance(error, ValueError) else told(error)
            raise SourceError(_PICKLED if "allow_pickle" in text else text) from error


def told(error: Exception) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def _is_jpeg(item: object) -> bool:
    return isinstance(item, np.ndarray) and item.dtype == np.uint8 and item[:3].tobytes() == b"\xff\xd8\xff"
