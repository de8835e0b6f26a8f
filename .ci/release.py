"""What a release says of itself: one version everywhere, a dated section of the changelog, files that fit to both.

`check [TAG]` compares them, before `dist` is uploaded; `notes TAG` prints the section. A tag is vVERSION.
"""

import re
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

PACKAGES = "obscodec", "obscodec_cupy", "obscodec_rllib", "obscodec_sb3", "obscodec_torchrl"
SECTION = re.compile(
    r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?\n(?P<notes>.*?)(?=^## \[|\Z)", re.M | re.S
)


def version_of(root: Path) -> str:
    """The version that the core has in its source."""
    text = (root / "packages/obscodec-core/src/obscodec/__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.M)[0]


def notes(root: Path, version: str) -> str:
    """The section of the changelog about a version, without its heading; "" if it is not there, dated and filled."""
    for match in SECTION.finditer((root / "CHANGELOG.md").read_text(encoding="utf-8")):
        if match["version"] == version and match["date"]:
            return match["notes"].strip()
    return ""


def disagreements(root: Path, tag: str | None = None) -> list[str]:
    """What does not belong to the version of the core, in the checkout and in its `dist`; and to a tag, if given."""
    version, found = version_of(root), list[str]()
    for package in PACKAGES:
        (init,) = root.glob(f"packages/*/src/{package}/__init__.py")
        if f'\n__version__ = "{version}"\n' not in init.read_text(encoding="utf-8"):
            found.append(f"{init.relative_to(root)} has not the version {version}")
    if f"\nversion: {version}\n" not in (root / "CITATION.cff").read_text(encoding="utf-8"):
        found.append(f"CITATION.cff has not the version {version}")
    wanted = {f"{package}-{version}{end}" for package in PACKAGES for end in (".tar.gz", "-py3-none-any.whl")}
    there = {file.name for file in (root / "dist").glob("*") if file.name.startswith("obscodec")}
    found += [f"dist lacks {name}" for name in sorted(wanted - there)]
    found += [f"dist has {name}, which is not of {version}" for name in sorted(there - wanted)]
    for name in sorted(wanted & there):
        about = Parser().parsestr(_metadata(root / "dist" / name))
        pins = [need for need in about.get_all("Requires-Dist", []) if re.match(r"obscodec\b(?!-)", need)]
        is_core = name.startswith("obscodec-")
        if about["Version"] != version or pins != ([] if is_core else [f"obscodec=={version}"]):
            found.append(f"dist/{name} is of {about['Version']}, and needs {pins or 'no obscodec'}")
    if tag is not None:
        if tag != f"v{version}":
            found.append(f"the tag is {tag}, and the version {version}")
        if not notes(root, version):
            found.append(f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD` with text")
    return found


def _metadata(file: Path) -> str:
    """What a source distribution or a wheel says of itself."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return wheel.read(name).decode()
    with tarfile.open(file) as archive:
        content = archive.extractfile(f"{file.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert content is not None
        return content.read().decode()


def main() -> None:
    """Check, or print notes; exit with what is wrong."""
    root = Path(__file__).parents[1]
    match sys.argv[1:]:
        case ["check", *tag]:
            if wrong := disagreements(root, tag[0] if tag else None):
                sys.exit("\n".join(wrong))
            print(
                f"All is of version {version_of(root)}" + ("" if tag else "; without a tag, CHANGELOG.md is not read")
            )
        case ["notes", tag]:
            print(notes(root, tag.removeprefix("v")))
        case _:
            sys.exit("usage: release.py check [TAG] | notes TAG")


if __name__ == "__main__":
    main()
