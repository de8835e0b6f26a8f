"""Importing obscodec loads numpy and nothing else that is heavy; codecs of other packages are found."""

import os
import sys
import textwrap
from pathlib import Path

import pytest
from new_python import run_python
from obscodec.installing import install_command

OPTIONAL = ("numba", "zstandard", "lz4", "ml_dtypes", "torch", "gymnasium", "stable_baselines3", "cupy")


def run(code: str, path: Path | None = None) -> str:
    """What a fresh interpreter prints, with ``path`` in front of its module path."""
    found = {"PYTHONPATH": os.pathsep.join([str(path), *filter(None, sys.path)])} if path else {}
    return run_python("-W", "error", "-c", textwrap.dedent(code), **found).strip()


def test_importing_obscodec_and_asking_what_is_available_imports_nothing_optional() -> None:
    optional = (*OPTIONAL, "multiprocessing", "importlib.metadata")
    code = f"""
        import sys, obscodec
        print([m for m in {optional} if m in sys.modules])
        obscodec.available()
        print([m for m in {OPTIONAL} if m in sys.modules])
    """
    assert run(code) == "[]\n[]"


def test_what_needs_numba_is_loaded_when_it_is_asked_for() -> None:
    code = """
        import sys, obscodec
        obscodec.Layout, obscodec.codec, obscodec.FrameStore
        assert "numba" in sys.modules
        print(sorted(set(obscodec.__all__) - set(dir(obscodec))), obscodec.RingBuffer.__name__)
    """
    assert run(code) == "[] RingBuffer"


def test_a_codec_loads_only_what_it_needs() -> None:
    code = f"""
        import sys, numpy, obscodec
        obscodec.decode(obscodec.encode(numpy.zeros(9), "shuffle|raw"))
        print([m for m in {OPTIONAL} if m in sys.modules])
        obscodec.decode(obscodec.encode(numpy.zeros(9), "zstd"))
        print([m for m in {OPTIONAL} if m in sys.modules])
    """
    assert run(code) == "[]\n['zstandard']"


@pytest.mark.parametrize(("name", "text"), [
    ("zarr", "obscodec.zarr needs zarr 3.1 or newer: pip install 'zarr>=3.1'"),
    ("numcodecs", "obscodec.numcodecs needs numcodecs: pip install numcodecs"),
    ("torch", "obscodec.torch needs torch: pip install torch"),
])  # fmt: skip
def test_a_module_for_a_package_that_is_missing_says_what_to_install(name: str, text: str) -> None:
    code = f"""
        import sys, obscodec
        sys.modules[{name!r}] = None  # as if it were not installed
        try:
            import obscodec.{name}
        except obscodec.MissingPackage as error:
            print(error)
    """
    assert run(code) == text


def test_packages_of_this_project_are_installed_from_git() -> None:
    def of(package: str, folder: str) -> str:
        return f'"{package} @ git+https://github.com/obscodec/obscodec#subdirectory=packages/{folder}"'

    core = of("obscodec", "obscodec-core")
    assert install_command("obscodec") == f"pip install {core}"
    assert install_command("obscodec[cli]") == f"pip install {of('obscodec[cli]', 'obscodec-core')}"
    for package in ("obscodec-torchrl", "obscodec-cupy[cuda13]"):
        assert install_command(package) == f"pip install {core} {of(package, package.partition('[')[0])}"


def install(folder: Path, entry_points: str) -> None:
    """A package as pip would install it."""
    (folder / "upside_down.py").write_text(
        textwrap.dedent(
            """
            from dataclasses import dataclass
            from obscodec.codecs.formats.raw import Raw

            @dataclass(frozen=True)
            class Inverted(Raw):
                name = "inverted"
                format = "inverted@1"

                def encode_rows(self, rows, out):
                    return super().encode_rows(~rows, out)

                def decode_rows(self, src, rows):
                    super().decode_rows(src, rows)
                    rows ^= 0xFF

            class Impostor(Raw):
                name = "raw"

            def no_codec(): pass
            """
        )
    )
    info = folder / "upside_down-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: upside-down\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[obscodec.codecs]\n{entry_points}\n")


def test_a_codec_of_another_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    install(tmp_path, "inverted = upside_down:Inverted")
    code = """
        import sys, numpy, obscodec
        assert "inverted" in obscodec.available()
        assert "upside_down" not in sys.modules
        x = numpy.arange(3, dtype="u1")
        for spec in ("inverted", "shuffle|inverted|zstd:3"):
            encoded = obscodec.encode(x, spec)
            assert (obscodec.decode(encoded) == x).all()
        print(bytes(obscodec.encode(x, "inverted").stream).hex())
    """
    assert run(code, tmp_path) == "fffefd"


def test_an_entry_point_takes_no_built_in_name(tmp_path: Path) -> None:
    install(tmp_path, "raw = upside_down:Impostor")
    code = """
        import obscodec
        print(type(obscodec.codec("raw", obscodec.Layout((), "u1"))).__module__)
    """
    assert run(code, tmp_path) == "obscodec.codecs.formats.raw"


def test_an_entry_point_that_is_no_codec_is_explained(tmp_path: Path) -> None:
    install(tmp_path, "strange = upside_down:no_codec")
    code = """
        import obscodec
        try:
            obscodec.codec("strange", obscodec.Layout((), "u1"))
        except obscodec.SpecError as error:
            print(error)
    """
    assert run(code, tmp_path) == "codec 'strange' is upside_down:no_codec, which is neither a Codec nor a Filter"
