"""Statuses: the numbers that compiled decoders return, here and on devices, and what each says about a stream."""

from typing import Final

from obscodec.errors import CorruptStream

OK: Final = 0
STATUS_TEXTS: Final[dict[int, str]] = {}


def _status(code: int, text: str) -> int:
    STATUS_TEXTS[code] = text
    return code


SHORT: Final = _status(1, "it ends inside a varint")
LONG_VARINT: Final = _status(2, "a varint is longer than it needs to be, or than 9 bytes")
OUTSIDE_BUFFER: Final = _status(33, "it lies outside of its buffer")
# of delta-rle
OUTSIDE_FRAME: Final = _status(3, "a run reaches beyond the end of the frame")
NO_LITERALS: Final = _status(4, "it has fewer literals than its runs need")
NO_SUCH_REFERENCE: Final = _status(16, "it is a patch of a reference frame that does not exist")
NO_SUCH_SECTION: Final = _status(17, "its runs reach beyond its end")
LEFT_OVER: Final = _status(18, "it holds more than its frames need")
OTHER_VERSION: Final = _status(19, "it is of a version that this store does not have")
FEW_FRAMES: Final = _status(20, "it has fewer frames than are wanted of it")
LARGE: Final = _status(21, "its patches have more bytes than is possible")
# of lz4
BAD_LZ4: Final = _status(40, "it is no LZ4 block of as many bytes as it says")
# of rle
WRONG_COUNT: Final = _status(52, "it says that it has more runs than elements or bytes")
WRONG_LENGTH: Final = _status(53, "a run is empty, or reaches beyond the end of the item")
WRONG_SUM: Final = _status(54, "its runs end before the item does")
WRONG_SECTION: Final = _status(55, "bytes are missing or left over between its run lengths and its values")
WRONG_SIZE: Final = _status(56, "it has no runs, and more or fewer bytes behind their number than the item")
# of pred
NO_SUCH_FRAME: Final = _status(60, "a frame has another number of bytes than its head and its pixels need")
NO_SUCH_STORAGE: Final = _status(61, "a frame is stored in a way that does not exist")
NO_SUCH_MODE: Final = _status(62, "a tile is predicted in a way that does not exist in its frame")
OUTSIDE_PADDING: Final = _status(63, "a vector leads outside of the frame before")
NO_SUCH_BITS: Final = _status(65, "its bits end elsewhere than they say")
# of palette
MANY_COLOURS: Final = _status(66, "it has more than 256 colours, or fewer bytes than these need")
NO_SUCH_COLOUR: Final = _status(67, "a pixel has a colour that is not in its palette")

STATUS_CODES: Final[dict[str, int]] = {name: code for name, code in list(globals().items()) if isinstance(code, int)}


def check(status: int) -> None:
    """Raise CorruptStream unless a status is OK."""
    if status != OK:
        raise CorruptStream(STATUS_TEXTS[status])
