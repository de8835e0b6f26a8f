"""Contracts as test classes: subclass one, name what you wrote, and a test runner checks every law.

    from obscodec.testing import CodecContract

    class TestMyCodec(CodecContract):
        spec = "my-codec:3"

Any test runner that calls methods named ``test_*`` will do. A law calls what users call, and never looks inside.
"""

from obscodec.testing.codec_contract import CodecContract
from obscodec.testing.store_contract import StoreContract

__all__ = ["CodecContract", "StoreContract"]
