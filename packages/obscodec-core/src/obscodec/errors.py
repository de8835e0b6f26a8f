"""The errors of obscodec, one class for each decision that a caller can take.

    ObscodecError
    ├── SpecError         (ValueError)    fix the spec
    │   └── LevelError                    fix the level in it
    ├── LayoutError                       fix the array, or another argument
    │   ├── ShapeError    (ValueError)    its shape, or a number that is out of range
    │   └── DTypeError    (TypeError)     its dtype, or what it is at all
    ├── FieldError        (LookupError)   fix the names of the fields
    ├── SlotError         (IndexError)    fix the slot
    ├── MissingPackage    (ImportError)   install something
    ├── BackendUnavailable (RuntimeError) install something, or use another device
    ├── DictionaryMissing (LookupError)   decode with the fitted codec
    ├── HeapFull          (MemoryError)   allow more memory, or free some
    └── CorruptStream     (ValueError)    discard the bytes

Each also derives from the builtin that people already catch. A refused call changes nothing.
"""


class ObscodecError(Exception):
    """The base of every error that obscodec raises on purpose."""


class SpecError(ObscodecError, ValueError):
    """A spec names no codec, or one that does not fit where it stands."""


class LevelError(SpecError):
    """A level in a spec is outside of what the codec offers."""


class LayoutError(ObscodecError):
    """An array does not have the layout that is asked for."""


class ShapeError(LayoutError, ValueError):
    """An array has another shape than the one that is asked for, or a number is out of range."""


class DTypeError(LayoutError, TypeError):
    """An array has another dtype than the one that is asked for, or one that can't be stored.

    Or an argument is something else: no array, no number, no codec.
    """


class FieldError(ObscodecError, LookupError):
    """The fields of a step are not those of the buffer, or one that is named is not there."""


class SlotError(ObscodecError, IndexError):
    """A slot or id is outside of the store, or holds nothing."""


class MissingPackage(ObscodecError, ImportError):
    """A codec needs a package that is not installed."""


class BackendUnavailable(ObscodecError, RuntimeError):
    """A device can't be used: its backend is not installed, or finds no driver or device."""


class DictionaryMissing(ObscodecError, LookupError):
    """A stream was encoded with a dictionary that the decoder does not have."""


class HeapFull(ObscodecError, MemoryError):
    """A write would take a heap over its ``max_bytes``."""


class CorruptStream(ObscodecError, ValueError):
    """A stream is truncated, altered, or not of the format that it is read as."""
