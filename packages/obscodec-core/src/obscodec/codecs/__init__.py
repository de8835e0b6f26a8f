"""Items to streams and back.

A codec gets items of one layout, and checks each stream that it reads. It never knows ids, stores or episodes.
"""

from obscodec.codecs.bytes_codec import BytesCodec
from obscodec.codecs.chain import TailedCodec
from obscodec.codecs.codec import Codec
from obscodec.codecs.coding import check_encodable, decode, encode
from obscodec.codecs.encoded import EncodedTensor
from obscodec.codecs.packing import pack, unpack
from obscodec.codecs.registry import available, check_codec, codec_from_config, new_codec
from obscodec.codecs.spec import check_spec, parse
from obscodec.codecs.stage import Filter, Levels

__all__ = [
    "BytesCodec",
    "Codec",
    "EncodedTensor",
    "Filter",
    "Levels",
    "TailedCodec",
    "available",
    "check_codec",
    "check_encodable",
    "check_spec",
    "codec_from_config",
    "decode",
    "encode",
    "new_codec",
    "pack",
    "parse",
    "unpack",
]
