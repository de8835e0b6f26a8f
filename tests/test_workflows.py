"""The workflows of GitHub: what they run is pinned, and they may do no more than they must."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FILES = sorted(ROOT.glob(".github/workflows/*.yml"))
PINNED = re.compile(r"uses: (?P<action>[\w.-]+/[\w./-]+)@(?P<sha>[0-9a-f]{40}) # (?P<version>v\d+\.\d+\.\d+)")
MAY_WRITE = {  # the jobs that have a permission besides reading the repository, which is public
    ("pages.yml", "publish"): {"contents": "write"},
    ("release.yml", "testpypi"): {"id-token": "write"},
    ("release.yml", "pypi"): {"id-token": "write"},
    ("release.yml", "github"): {"contents": "write"},
    ("release.yml", "site"): {"contents": "write"},
}


def read(file: Path) -> dict[Any, Any]:
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")))


@pytest.fixture(params=FILES, ids=lambda file: file.name)
def file(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_actions_are_pinned_by_a_commit_with_their_version(file: Path) -> None:
    lines = [line.strip().removeprefix("- ") for line in file.read_text(encoding="utf-8").splitlines()]
    used = [line for line in lines if line.startswith("uses:") and not line.startswith("uses: ./")]
    assert used
    assert [line for line in used if not PINNED.fullmatch(line)] == []
    steps = [step for job in read(file)["jobs"].values() for step in job.get("steps", [])]
    assert sum("uses" in step for step in steps) == len(used)


def test_all_workflows_use_one_commit_of_an_action() -> None:
    found = {match.groups() for file in FILES for match in PINNED.finditer(file.read_text(encoding="utf-8"))}
    assert len({action for action, *_ in found}) == len(found)


def test_a_job_may_do_what_it_must(file: Path) -> None:
    workflow = read(file)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        may = job.get("permissions", workflow["permissions"])
        assert may in ({}, {"contents": "read"}, MAY_WRITE.get((file.name, name))), name
        if "id-token" in may:
            assert job["environment"]["name"] == name  # which people protect
        assert "uses" in job or job["timeout-minutes"] <= 90, name


def test_no_job_runs_what_strangers_write(file: Path) -> None:
    workflow = read(file)
    triggers = workflow[True]  # yaml reads `on` so
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & {*triggers}
    for name, job in workflow["jobs"].items():
        for step in job.get("steps", []):
            assert re.findall(r"\$\{\{(?! *matrix\.)", step.get("run", "")) == [], name
            if step.get("uses", "").startswith("actions/checkout@"):
                keeps = step.get("with", {}).get("persist-credentials", True)
                assert keeps == ((file.name, name) == ("pages.yml", "publish")), name  # it pushes


def test_a_release_goes_to_the_test_index_first_and_has_all_packages() -> None:
    workflow = read(ROOT / ".github/workflows/release.yml")
    jobs = workflow["jobs"]
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    assert [jobs[name]["needs"] for name in ("testpypi", "compare", "pypi")] == ["build", "testpypi", "compare"]
    assert {jobs[name]["needs"] for name in ("github", "site")} == {"pypi"}
    packages = sorted(path.name for path in ROOT.glob("packages/*/src/*") if (path / "__init__.py").exists())
    for name in ("testpypi", "pypi"):
        assert jobs[name]["strategy"]["matrix"]["package"] == packages
        publish = jobs[name]["steps"][-1]["with"]
        assert publish["attestations"] is True
        assert "password" not in publish
    assert jobs["testpypi"]["steps"][-1]["with"]["repository-url"] == "https://test.pypi.org/legacy/"
    assert "repository-url" not in jobs["pypi"]["steps"][-1]["with"]


def test_dependabot_updates_actions_and_python() -> None:
    updates = read(ROOT / ".github/dependabot.yml")["updates"]
    assert [update["package-ecosystem"] for update in updates] == ["github-actions", "uv"]
    assert all(update["groups"] for update in updates)


def test_zenodo_says_what_the_citation_says() -> None:
    """Zenodo reads its own file alone."""
    citation = read(ROOT / "CITATION.cff")
    zenodo = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    for name in ("title", "keywords", "license"):
        assert zenodo[name] == citation[name]
    assert zenodo["description"] == citation["abstract"]
    assert zenodo["creators"] == citation["authors"]
    assert [of["identifier"] for of in zenodo["related_identifiers"]] == [citation["repository-code"]]
