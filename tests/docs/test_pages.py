"""Every command and every Python block in the documentation runs; every link leads somewhere.

The pages speak of `smollm2.gguf`, `small` and `notes.txt`. Here these are a tiny random model, a packed
version of it and random words, and shrinking takes the least effort unless a page names another.
"""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, Block, blocks, headings, links
from tests.e2e.models import write_model, write_text

# The environment's own command, as people type it.
PENJING = Path(sys.executable).with_name("penjing")
LANGUAGES = {"sh", "python", "json", ""}
# Setting up can't be tested by what it sets up. Keep these few.
MOST_SKIPPED = 2


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pages speak of."""
    folder = tmp_path_factory.mktemp("models")
    # A model is known by its content, so a folder may have the name of a file.
    write_model(folder / "smollm2.gguf")
    write_text(folder / "notes.txt", documents=60)
    _run(["penjing", "shrink", "smollm2.gguf", "-o", "small", "--to", "1/2", "--effort", "fast"], folder)
    return folder


@pytest.fixture
def place(models: Path, tmp_path: Path) -> Path:
    """A folder with the files that the pages speak of, to run a page in."""
    return shutil.copytree(models, tmp_path / "page")


def _run(command: list[str], folder: Path) -> None:
    if command[0] == "penjing":
        command = [str(PENJING), *command[1:]]
    if "shrink" in command and "--effort" not in command:
        command = [*command, "--effort", "fast"]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=300
    )
    # A random model may not keep what `--keep` asks for; that is a result and not a failure.
    allowed = {0, 1} if "--keep" in command else {0}
    assert done.returncode in allowed, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"


def _run_block(block: Block, folder: Path) -> None:
    if block.language == "python":
        _run([sys.executable, "-W", "error", "-c", block.text], folder)
    for command in block.commands if block.language == "sh" else ():
        _run(shlex.split(command), folder)


def _to_run(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in ("sh", "python") and block.skipped is None]


@pytest.mark.parametrize("page", [p for p in PAGES if _to_run(p)], ids=lambda page: page.name)
def test_every_command_and_python_block_of_a_page_runs(page: Path, place: Path) -> None:
    for block in _to_run(page):
        _run_block(block, place)


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    reasons = [block.skipped for page in PAGES for block in blocks(page) if block.skipped is not None]
    assert all(len(reason.split()) >= 3 for reason in reasons)
    assert len(reasons) <= MOST_SKIPPED


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_names_a_language_that_is_tested_or_plain(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES
    assert page.read_text(encoding="utf-8").count("```") == 2 * len(blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for link in links(page):
        if "://" not in link:
            path, _, heading = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.is_relative_to(ROOT) and target.exists(), link
            assert not heading or heading in headings(target), link


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {(ROOT / link).resolve() for link in links(ROOT / "README.md") if "://" not in link}
    assert set(PAGES) - {ROOT / "README.md"} <= linked
