"""The site builds without a warning, no link is broken, and tables match the code."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ginkgo import cli

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
#: Rooms that offer names to others.
ROOMS = ("records", "features", "pipeline", "models", "search")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built with warnings as errors."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return out


class _Page(HTMLParser):
    """What a page has and where it leads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors.add(found.get("id") or "")
        for name in ("href", "src"):
            if found.get(name):
                self.links.append(found[name])


def test_no_link_of_the_site_is_broken(site):
    pages = {}
    for file in site.rglob("*.html"):
        pages[file.resolve()] = page = _Page()
        page.feed(file.read_text())
    assert len(pages) > 10
    for file, page in pages.items():
        if file.name == "404.html":
            continue
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                # Links of text only: nothing that a page needs is fetched from elsewhere.
                assert link.startswith(("https://", "mailto:", "data:")), link
                continue
            path, _, anchor = link.partition("#")
            target = (file.parent / path.partition("?")[0]).resolve() if path else file
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{file.name}: {link}"
            if anchor and target in pages:
                assert anchor in pages[target].anchors | {"__nav"}, f"{file.name}: {link}"


def test_the_site_needs_nothing_from_elsewhere(site):
    for file in site.rglob("*.html"):
        text = file.read_text()
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://[^"]+"[^>]*>', text)


def test_options_of_each_verb_are_on_the_site(site):
    text = (site / "VERBS" / "index.html").read_text()
    assert "--val-fraction" in text
    for verb in cli.VERBS:
        assert f"usage: ginkgo {verb}" in text
    assert "options: " not in re.sub("<[^>]+>", "", text)


# --- links between files, as a code host shows them --------------------------------------------


def _anchors(markdown: str) -> set[str]:
    heads = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^```.*?^```", "", markdown))
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize(
    "file",
    [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *ROOT.glob("*/README.md")],
    ids=lambda file: str(file.relative_to(ROOT)),
)
def test_links_between_files(file):
    text = file.read_text()
    for _, path, anchor in re.findall(r"(!?)\[[^\]]*\]\(([^)#\s]*)(#[^)\s]*)?\)", text):
        if re.match(r"[a-z]+:", path):
            continue
        target = (file.parent / path) if path else file
        assert target.exists(), path
        if anchor:
            assert anchor[1:] in _anchors(target.read_text()), path + anchor


# --- tables that repeat the code ---------------------------------------------------------------


def test_every_public_name_is_in_the_glossary():
    text = (DOCS / "GLOSSARY.md").read_text()
    for room in ROOMS:
        module = importlib.import_module(f"ginkgo.{room}")
        part = text.partition(f"### `ginkgo.{room}`")[2].partition("\n### ")[0]
        assert sorted(re.findall(r"(?m)^\| `(\w+)` \|", part)) == sorted(module.__all__)


def test_no_other_room_has_public_names():
    found = set()
    for file in (ROOT / "ginkgo").glob("*/__init__.py"):
        tree = ast.parse(file.read_text())
        if any(getattr(node.targets[0], "id", "") == "__all__" for node in tree.body
               if isinstance(node, ast.Assign)):  # fmt: skip
            found.add(file.parent.name)
    assert found == set(ROOMS)


def test_every_curve_is_explained():
    """Whatever is written for TensorBoard by name has a line in its guide."""
    text = (DOCS / "TENSORBOARD.md").read_text()
    monitor = (ROOT / "ginkgo" / "training" / "monitor.py").read_text()
    evaluation = (ROOT / "ginkgo" / "training" / "evaluation.py").read_text()
    names = re.findall(r'"(?:train|input)/(\w+)"', monitor)
    names += re.findall(r'"val_baseline/(\w+)"', evaluation)
    names += re.findall(r'_plots/(\w+)"', evaluation)
    assert len(names) > 12
    for name in names:
        assert f"`{name}`" in text or f"/{name}`" in text, name


def test_files_and_names_that_contributors_are_pointed_at_exist():
    text = (DOCS / "CONTRIBUTING.md").read_text()
    table = [line for line in text.splitlines() if line.startswith("| ")]
    code = "\n".join(path.read_text() for path in (ROOT / "ginkgo").rglob("*.py"))
    for name in re.findall(r"`([A-Z_a-z]\w+)`", "\n".join(table)):
        assert re.search(rf"\b{name}\b", code), name
    for path in re.findall(r"`((?:\w+/)+\w+\.py)`(?!\])", text):
        assert (ROOT / "ginkgo" / path).exists() or (ROOT / path).exists(), path


# --- the READMEs -------------------------------------------------------------------------------


def _commands(text: str) -> list[str]:
    """The commands of indented blocks, without what is said of them."""
    lines = re.findall(r"(?m)^    (\S.*)$", text)
    return [re.sub(r"\s+#.*", "", line).rstrip() for line in lines]


def _code(text: str) -> list[str]:
    """What stands between backticks in running text, in any order."""
    return sorted(re.findall(r"`([^`\n]+)`", text))


def _figures(text: str) -> list[str]:
    """The numbers of a text, in order; single digits, which may be words, left out."""
    return re.findall(r"\d*\.\d+|\d[\d,]*\d", text)


def test_both_readmes_say_the_same():
    english, japanese = ((ROOT / name).read_text() for name in ("README.md", "README.ja.md"))
    assert _commands(english) == _commands(japanese)
    assert len(_commands(english)) > 8
    assert _code(english) == _code(japanese)
    links = [re.findall(r"\]\(([^)]+)\)", text) for text in (english, japanese)]
    assert set(links[0]) - {"README.ja.md"} == set(links[1]) - {"README.md"}
    assert len(re.findall("(?m)^## ", english)) == len(re.findall("(?m)^## ", japanese))


def test_both_readmes_have_the_same_figures():
    english, japanese = ((ROOT / name).read_text() for name in ("README.md", "README.ja.md"))
    assert sorted(_figures(english)) == sorted(_figures(japanese))
    tables = [re.findall(r"(?m)^\|.*\d.*\|$", text) for text in (english, japanese)]
    assert len(tables[0]) > 4
    for ours, theirs in zip(*tables, strict=True):
        assert sorted(_figures(ours)) == sorted(_figures(theirs))
