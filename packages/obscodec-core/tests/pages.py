"""Pages of `obscodec inspect --html`: what they say, and whether it is what a buffer holds."""

import base64
import json
import re

import cv2
import numpy as np
import typer
from obscodec.cli.commands import inspect

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def _image(text):
    image = cv2.imdecode(np.frombuffer(base64.b64decode(text), np.uint8), cv2.IMREAD_UNCHANGED)
    return image if image.ndim == 2 else image[..., ::-1]  # which OpenCV keeps as BGR


def page_of(folder, *, code=0):
    """What the page of a snapshot says, and what it is, with the images decoded."""
    target = folder.with_name(f"{folder.name}.html")
    found = 0
    try:
        inspect(str(folder), str(target))
    except typer.Exit as error:
        found = error.exit_code
    assert found == code
    text = target.read_text("utf-8")
    (said,) = DATA.findall(text)
    data = json.loads(said)
    data["images"] = [_image(text) for text in data.get("images", [])]
    return data, text


def check_steps(data, shown, values, n_envs):
    """Check images ``shown(name, step, env)`` and numbers ``values(name, step, env)`` of all that a page shows."""
    seen = set()
    for part in data["parts"]:
        assert {len(of) for of in [*part["images"].values(), *part["numbers"].values()]} == {part["n"]}
        for k in range(part["n"]):
            step, env = part["first"] + k, part["env"]
            seen.add((step, env))
            for name, numbers in part["images"].items():
                np.testing.assert_array_equal(data["images"][numbers[k]], shown(name, step, env))
            for name, texts in part["numbers"].items():
                expected = np.ravel(values(name, step, env))[: len(texts[k])]
                found = [text == "True" if expected.dtype == bool else text for text in texts[k]]
                np.testing.assert_array_equal(np.array(found).astype(expected.dtype), expected, name)
    for sheet in data["sheet"]:
        for (step, env), number in zip(sheet["at"], sheet["images"], strict=True):
            seen.add((step, env))
            assert 0 <= env < n_envs
            np.testing.assert_array_equal(data["images"][number], shown(sheet["name"], step, env))
    assert data["n_shown"] == len(seen)
