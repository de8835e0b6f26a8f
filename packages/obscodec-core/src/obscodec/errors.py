"""The errors of obscodec, one class for each decision that a caller can take.

    ObscodecError
    ├── SpecError         (ValueError)    fix the spec
    │   └── LevelError                    fix the level in it
    ├── LayoutError                       fix the array, or another argument
    │   ├── ShapeError    (ValueError)    its shape, or a number that is out of range
    │   │   └── LimitTooLow               allow more memory, or make the buffer smaller
    │   └── DTypeError    (TypeError)     its dtype, or its type
    ├── FieldError        (LookupError)   fix the names of the fields
    ├── SlotError         (IndexError)    fix the slot
    ├── MissingPackage    (ImportError)   install something
    ├── BackendUnavailable (RuntimeError) install something, or use another device
    ├── DictionaryMissing (LookupError)   decode with the fitted codec
    ├── RateLimited       (TimeoutError)  find out who does not append or sample, or wait longer
    ├── Unreachable       (ConnectionError) wait, or look why another process does not answer
    ├── HeapFull          (MemoryError)   allow more memory, or free some
    ├── CorruptStream     (ValueError)    discard the bytes
    ├── SnapshotError     (ValueError)    load another generation, or with another version
    └── SourceError       (ValueError)    name other files, or mend them

Each also derives from the builtin that people already catch. A refused call changes nothing.
"""


class ObscodecError(Exception):
    """The base of every error that obscodec raises on purpose."""


class SpecError(ObscodecError, ValueError):
    """A spec names no codec, or a codec that does not fit its place in the chain."""


class LevelError(SpecError):
    """The codec does not offer the level that its spec names."""


class LayoutError(ObscodecError):
    """An array does not have the expected layout."""


class ShapeError(LayoutError, ValueError):
    """An array does not have the expected shape, or a number is out of range."""


class LimitTooLow(ShapeError):
    """A buffer would take more than its ``max_bytes`` whatever its observations are."""


class DTypeError(LayoutError, TypeError):
    """An array has an unexpected dtype, or one that can't be stored; or an argument has the wrong type."""


class FieldError(ObscodecError, LookupError):
    """The fields of a step are not the fields of the buffer, or the buffer has no field of that name."""


class SlotError(ObscodecError, IndexError):
    """A slot or id is outside of the store, or holds nothing."""


class MissingPackage(ObscodecError, ImportError):
    """Something needs a package that is not installed."""


class BackendUnavailable(ObscodecError, RuntimeError):
    """A device can't be used: its backend is not installed, or finds no driver or device."""


class DictionaryMissing(ObscodecError, LookupError):
    """A stream was encoded with a dictionary that the decoder does not have."""


class RateLimited(ObscodecError, TimeoutError):
    """A call has waited for the ``timeout`` of a ``RateLimiter``."""


class Unreachable(ObscodecError, ConnectionError):
    """Another process does not answer, or not to this one any more."""


class HeapFull(ObscodecError, MemoryError):
    """A write would take a heap over its ``max_bytes``."""


class CorruptStream(ObscodecError, ValueError):
    """A stream is truncated, altered, or has another format than its decoder."""


class SnapshotError(ObscodecError, ValueError):
    """A snapshot is damaged or incomplete, of something else, or of a newer version; or its folder can't be used.

    Or a pickle is of another version.
    """


class SourceError(ObscodecError, ValueError):
    """Recorded data, or another source of data, can't be read; the text says what was found, and what to do."""
