"""The shell commands of the documents run, or what they name is there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^ *```sh\n(?P<code>.*?)^ *```", re.MULTILINE | re.DOTALL)
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("packages/*/README.md"))]
URL = "https://github.com/obscodec/obscodec"
FOREIGN = (
    "git clone",
    "cd ",
    "apt-get ",
    "dpkg ",
    "docker ",
    "python FOLDER/",
    "python -m rl_zoo3.",
    "pip install uv",
    "uv venv",
)


def commands() -> list[tuple[str, str]]:
    """Each command of each document, on one line and without comments."""
    found = []
    for path in DOCUMENTS:
        for block in BLOCK.finditer(path.read_text(encoding="utf-8")):
            lines = re.sub(r"\\\n\s*", "", block["code"]).splitlines()
            found += [(str(path.relative_to(ROOT)), re.sub(r"(?:^|\s+)#\s.*", "", line).strip()) for line in lines]
    return [(path, command) for path, command in found if command]


COMMANDS = commands()
INSTALLS = sorted({command for _, command in COMMANDS if command.startswith("pip ") and "packages/" in command})
OURS = sorted(
    {command for _, command in COMMANDS if command.startswith(("obscodec ", "python -c ", "python -m obscodec "))}
)


def test_every_command_is_of_a_kind_that_is_tested() -> None:
    scripts = [command for _, command in COMMANDS if command.startswith("uv run ")]
    others = [command for _, command in COMMANDS if command not in {*INSTALLS, *OURS, *scripts}]
    assert [command for command in others if not command.startswith((*FOREIGN, "pip install "))] == []
    assert len(INSTALLS) >= 6
    assert len(OURS) >= 3
    assert len(scripts) >= 8


@pytest.mark.parametrize("command", sorted({command for _, command in COMMANDS if command.startswith("uv run ")}))
def test_a_script_and_its_options_are_there(command: str) -> None:
    words = shlex.split(command)
    if "just" in words:
        verb = words[words.index("just") + 1]
        assert re.search(rf"^{verb}\b[^:\n]*:", (ROOT / "justfile").read_text(encoding="utf-8"), re.MULTILINE)
        return
    script = next((word for word in words if word.endswith(".py")), None)
    assert script, command
    text = (ROOT / script).read_text(encoding="utf-8")
    for option in words[words.index(script) + 1 :]:
        if option.startswith("--"):
            name = option.removeprefix("--").partition("=")[0]
            assert re.search(rf'{name.replace("-", "_")}:|"--{name}"', text), f"{script} has no {option}"


@pytest.mark.slow
@pytest.mark.parametrize("command", INSTALLS)
def test_an_installation_works(command: str, tmp_path: Path) -> None:
    """Of this checkout and of our packages alone: what they depend on is pip's to find."""
    venv = tmp_path / "venv"
    subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
    python = venv / "bin" / "python"
    words = [word.replace(f"git+{URL}", f"git+file://{ROOT}") for word in shlex.split(command)[2:]]
    wanted = [word for word in words if "packages/" in word]
    assert wanted
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--python", str(python), *wanted]
    subprocess.run(install, check=True, cwd=ROOT)
    listed = subprocess.run(
        ["uv", "pip", "list", "--python", str(python)], check=True, capture_output=True, text=True
    ).stdout
    names = {
        "obscodec" if name == "obscodec-core" else name for name in re.findall(r"packages/(obscodec-\w+)", command)
    }
    assert {line.split()[0] for line in listed.splitlines()[2:]} == names


@pytest.mark.slow
@pytest.mark.parametrize("command", OURS)
def test_a_command_of_ours_runs(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    if words[0] == "obscodec":
        words[:1] = [sys.executable, "-m", "obscodec"]
    elif words[0] == "python":
        words[0] = sys.executable
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout
