"""What a package index shows of the packages: versions that belong together, and links that lead somewhere."""

import importlib
import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECTS = {
    project["project"]["name"]: (path.parent, project)
    for path in ROOT.glob("packages/*/pyproject.toml")
    if (project := tomllib.loads(path.read_text(encoding="utf-8")))
}
URL = "https://github.com/obscodec/obscodec"
LINK = re.compile(r"\]\((?P<target>[^)#]+)(?:#[^)]*)?\)")


@pytest.fixture(params=PROJECTS)
def name(request: pytest.FixtureRequest) -> str:
    """The name of a package."""
    return request.param


def test_a_module_has_the_version_of_its_package_which_all_packages_share(name: str) -> None:
    version = importlib.import_module(name.replace("-", "_")).__version__
    assert version == metadata(name)["Version"] == importlib.import_module("obscodec").__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    needed = [each for each in PROJECTS[name][1]["project"]["dependencies"] if each.startswith("obscodec")]
    assert needed == ([] if name == "obscodec" else [f"obscodec=={version}"])


def test_links_of_a_readme_lead_to_files_of_the_repository_from_anywhere(name: str) -> None:
    folder, project = PROJECTS[name]
    targets = LINK.findall((folder / "README.md").read_text(encoding="utf-8"))
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    urls = project["project"]["urls"]
    assert urls["Repository"] == URL
    for target in [*targets, *urls.values()]:
        if target.startswith(f"{URL}/") and target != f"{URL}/issues":
            path = re.fullmatch(rf"{URL}/(?:blob|tree)/main/(?P<path>.+)", target)
            assert path, target
            assert (ROOT / path["path"]).exists(), target


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.name)
def test_an_example_installs_the_packages_of_the_checkout_and_the_versions_that_are_tested(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if "__main__" not in text:
        return  # a module of the other examples
    block = re.match(r"# /// script\n(?P<lines>(?:#.*\n)+?)# ///\n", text)
    assert block
    script = tomllib.loads("".join(line.removeprefix("#").lstrip() + "\n" for line in block["lines"].splitlines()))
    tested = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"][
        "constraint-dependencies"
    ]
    needed = {each.partition("[")[0] for each in script["dependencies"]}
    ours = {each for each in needed if each.startswith("obscodec")}
    assert sorted(needed - ours - set(tested)) == []
    sources = {name: path.parent / of["path"] for name, of in script["tool"]["uv"]["sources"].items()}
    assert {name: folder.resolve() for name, folder in sources.items()} == {each: PROJECTS[each][0] for each in ours}


def test_ci_tries_the_pythons_of_the_classifiers(name: str) -> None:
    classifiers = metadata(name).get_all("Classifier") or []
    versions = [each.rpartition(" ")[2] for each in classifiers if re.search(r":: 3\.\d+$", each)]
    assert f'pythons := "{" ".join(versions)}"\n' in (ROOT / "justfile").read_text(encoding="utf-8")
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert f"python: {versions}\n".replace("'", '"') in workflow


def test_the_license_of_each_package_is_that_of_the_repository(name: str) -> None:
    assert (PROJECTS[name][0] / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
