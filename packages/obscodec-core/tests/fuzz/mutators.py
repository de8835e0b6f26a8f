"""Changes of bytes and of JSON values that know what numbers look like in our formats."""

import copy
import json
import random
from typing import Any

from hostile_messages import DTYPE_JUNK, JUNK, SPEC_JUNK
from hostile_messages import changed as _changed

HOSTILE: list[Any] = [*JUNK, *DTYPE_JUNK, *SPEC_JUNK, -(2**31), 2**31 - 1, 2**63 - 1, -(2**63), 255, 256, 65536]


def changed(content: bytes, rng: random.Random) -> bytes:
    """Some bytes are others, gone or more; but not the first one, which often says what follows."""
    if rng.random() < 0.05:
        return bytes([rng.randrange(256)]) + content[1:]
    return content[:1] + _changed(content[1:], rng)


def changed_text(content: bytes, rng: random.Random) -> bytes:
    """JSON with another value somewhere; or some bytes, if it is none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return _changed(content, rng)
    if rng.random() < 0.1:
        return _changed(content, rng)
    return json.dumps(changed_value(value, rng)).encode()


def changed_value(value: Any, rng: random.Random) -> Any:
    """A copy of a JSON value that is changed in one place or several."""
    whole = [copy.deepcopy(value)]
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = list(_places(whole))
        of, key = rng.choice(places)
        kind = rng.randrange(6)
        if kind == 0 and isinstance(of, dict):
            del of[key]
        elif kind == 1 and isinstance(of, list) and of is not whole:
            of.insert(key, copy.deepcopy(of[key]))
        elif kind == 2:
            other, at = rng.choice(places)
            of[key] = copy.deepcopy(other[at])
        elif kind == 3 and type(of[key]) is int:
            of[key] += rng.choice((-1, 1, 2, 16, -16, 2 ** rng.randrange(70)))
        else:
            of[key] = copy.deepcopy(rng.choice(HOSTILE))
    return whole[0]


def _places(value: Any) -> Any:
    """The places in a list or a dictionary, each as what has it and its key."""
    for key, item in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        yield value, key
        if isinstance(item, (list, dict)):
            yield from _places(item)
