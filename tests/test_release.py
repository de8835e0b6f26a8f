"""`just release-check` finds what does not belong to one version, in a copy of the files that it reads."""

import importlib.util
import io
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("release", ROOT / ".ci/release.py")
assert spec is not None
assert spec.loader is not None
release = importlib.util.module_from_spec(spec)
spec.loader.exec_module(release)
FOLDERS = ["core", "cupy", "rllib", "sb3", "torchrl"]


def write_package(root: Path, k: int, version: str = "1.2.0", pin: str = "1.2.0") -> None:
    package = release.PACKAGES[k]
    source = root / f"packages/obscodec-{FOLDERS[k]}/src/{package}/__init__.py"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(f'"""A package."""\n\n__version__ = "{version}"\n')
    needs = "" if k == 0 else f"Requires-Dist: obscodec=={pin}\nRequires-Dist: numpy\n"
    about = f"Metadata-Version: 2.4\nName: {package}\nVersion: {version}\n{needs}\n".encode()
    (root / "dist").mkdir(exist_ok=True)
    with zipfile.ZipFile(root / f"dist/{package}-1.2.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{package}-{version}.dist-info/METADATA", about)
    with tarfile.open(root / f"dist/{package}-1.2.0.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo(f"{package}-1.2.0/PKG-INFO")
        member.size = len(about)
        archive.addfile(member, io.BytesIO(about))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for k in range(len(FOLDERS)):
        write_package(tmp_path, k)
    (tmp_path / "CITATION.cff").write_text("title: x\nversion: 1.2.0\nlicense: MIT\n")
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-12-01\n\n- new\n\n## [1.1.0] - 2026-11-01\n\n- old\n"
    )
    return tmp_path


def test_what_belongs_together_is_released(root: Path) -> None:
    assert release.disagreements(root) == release.disagreements(root, "v1.2.0") == []
    assert release.notes(root, "1.2.0") == "- new"
    assert release.notes(root, "1.1.0") == "- old"


def test_another_tag(root: Path) -> None:
    assert release.disagreements(root, "v1.3.0") == ["the tag is v1.3.0, and the version 1.2.0"]


@pytest.mark.parametrize("heading", ["## [Unreleased]", "## [1.2.0]", "## [1.2.1] - 2026-12-01"])
def test_a_changelog_without_the_version_and_its_date(heading: str, root: Path) -> None:
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n\n- new\n")
    assert release.disagreements(root) == []
    assert release.disagreements(root, "v1.2.0") == ["CHANGELOG.md has no section `## [1.2.0] - YYYY-MM-DD` with text"]


def test_another_version_in_a_file(root: Path) -> None:
    (root / "CITATION.cff").write_text("title: x\nversion: 1.1.0\n")
    write_package(root, 3, version="1.1.0")
    write_package(root, 4, pin="1.1.0")
    (root / "dist/obscodec-1.1.0.tar.gz").touch()
    (root / "dist/obscodec_cupy-1.2.0.tar.gz").unlink()
    found = "\n".join(release.disagreements(root))
    for text in (
        "obscodec_sb3/__init__.py has not the version 1.2.0",
        "CITATION.cff has not the version 1.2.0",
        "dist lacks obscodec_cupy-1.2.0.tar.gz",
        "dist has obscodec-1.1.0.tar.gz, which is not of 1.2.0",
        "dist/obscodec_sb3-1.2.0.tar.gz is of 1.1.0, and needs ['obscodec==1.2.0']",
        "dist/obscodec_torchrl-1.2.0-py3-none-any.whl is of 1.2.0, and needs ['obscodec==1.1.0']",
    ):
        assert text in found


def test_the_checkout_belongs_together_but_for_its_changelog() -> None:
    """`dist` may not be built here."""
    found = release.disagreements(ROOT)
    assert [text for text in found if not re.match("dist (lacks|has)", text)] == []
