"""Rules of the tree itself: format, lengths of files, and pages that name what exists."""
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def tracked(*patterns):
    done = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for path in done.stdout.splitlines() if (ROOT / path).exists()]


def test_sources_are_formatted():
    if not (shutil.which("clang-format-14") or shutil.which("clang-format")):
        pytest.skip("no clang-format here (apt-get install clang-format-14)")
    done = subprocess.run([ROOT / "tools/format", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]


def test_no_source_is_too_long():
    """Over 500 lines wants a reason; 700 is the limit, 900 for kernels and tests."""
    for path in tracked("*.h", "*.cpp", "*.cu"):
        limit = 900 if path.startswith(("kernels/", "tests/")) else 700
        length = len((ROOT / path).read_text().splitlines())
        assert length <= limit, f"{path} has {length} lines"


def test_pages_link_to_what_exists():
    for page in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_script_is_listed():
    listed = (ROOT / "tools/README.md").read_text()
    for path in tracked("tools/*"):
        name = path.removeprefix("tools/")
        if name.endswith((".md", ".txt")) or name == "lib.sh":
            continue
        assert f"`{name}`" in listed or f"`{name.split('/')[0]}/`" in listed, f"tools/README.md says nothing of {name}"
