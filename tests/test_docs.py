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


def test_the_site(tmp_path):
    """It builds with warnings as errors, and is whole."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    texts = {file.resolve(): file.read_text() for file in tmp_path.rglob("*.html")}
    assert len(texts) > 10
    _no_link_is_broken(texts)
    for text in texts.values():
        # Links of text may lead elsewhere; nothing that a page is made of comes from there.
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://[^"]+"[^>]*>', text)
    verbs = texts[(tmp_path / "VERBS" / "index.html").resolve()]
    for verb in cli.VERBS:
        assert f"usage: ginkgo {verb}" in verbs
    assert "<!-- options" not in verbs
    assert "--val-fraction" in verbs


def _no_link_is_broken(texts: dict[Path, str]) -> None:
    pages = {}
    for file, text in texts.items():
        pages[file] = page = _Page()
        page.feed(text)
    for file, page in pages.items():
        for link in page.links if file.name != "404.html" else ():
            if re.match(r"[a-z]+:", link):
                assert link.startswith(("https://", "mailto:", "data:")), link
                continue
            path, _, anchor = link.partition("#")
            target = (file.parent / path.partition("?")[0]).resolve() if path else file
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{file}: {link}"
            if anchor and target in pages:
                assert anchor in pages[target].anchors | {"__nav"}, f"{file}: {link}"


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
    from ginkgo.training.monitor import SOURCE_CURVES
    from ginkgo.training.sources import _CURVES

    names = re.findall(r'"(?:train|input)/(\w+)"', monitor)
    names += re.findall(r'"val_baseline/(\w+)"', evaluation)
    names += re.findall(r'_plots/(\w+)"', evaluation)
    names += [f"{SOURCE_CURVES}{name}" for name in _CURVES]
    assert len(names) > 12
    for name in names:
        assert re.search(rf"[`/]{name}`", text), name


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
