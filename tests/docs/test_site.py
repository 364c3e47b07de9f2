"""The documentation site: it builds without a warning, holds every public name, and needs nothing from elsewhere."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import accord

DOCS = Path(__file__).parents[2] / "docs"
pytest.importorskip("sphinx", reason="the site is built with Sphinx: pip install 'accord-fl[docs]'")
pytestmark = pytest.mark.slow  # make docs builds the site, as strictly
pytest.importorskip("furo", reason="the site is built with furo: pip install 'accord-fl[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Strict: a page in no table of contents, a link that leads nowhere and a name that is not documented are
    errors."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-n",
            "-W",
            "--keep-going",
            "-q",
            "-d",
            folder / "doctrees",
            DOCS,
            folder / "html",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_there(site: Path) -> None:
    sources = [path for kind in ("*.md", "*.ipynb") for path in DOCS.rglob(kind) if "_build" not in path.parts]
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in sources}
    assert len(pages) > 30 and Path("tutorials/first-federation.html") in pages
    assert not [page for page in pages if not (site / page).exists()]


def documented(site: Path) -> set[str]:
    from sphinx.util.inventory import InventoryFile

    held = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    return {name for kind, names in held.data.items() if kind.startswith("py:") for name in names}


def test_every_public_name_is_documented(site: Path) -> None:
    names = documented(site)
    modules = {
        "aggregate",
        "attack",
        "audit",
        "causal",
        "data",
        "draws",
        "local",
        "logs",
        "metrics",
        "models",
        "native",
        "privacy",
        "schedule",
        "server",
    }
    public = {f"accord.{name}" for name in dir(accord)}
    assert sorted(public - names) == []
    assert {f"accord.{name}" for name in modules} <= names
    for module in ("audit", "causal", "data", "models", "privacy"):
        callables = [
            name for name in getattr(accord, module).__all__ if callable(getattr(getattr(accord, module), name))
        ]
        sets = accord.data.DATASETS.values()
        missing = [
            n
            for n in callables
            if f"accord.{module}.{n}" not in names and getattr(getattr(accord, module), n) not in sets
        ]
        assert missing == []


def test_code_links_lead_to_code(site: Path) -> None:
    page = (site / "reference" / "algorithms" / "fedadam.html").read_text()
    assert "[source]" in page and (site / "_modules" / "accord" / "rules" / "named.html").exists()
    downloads = re.findall(r'href="(\.\./\.\./_downloads/[^"]+/adaptive\.py)"', page)
    assert downloads and "class adam" in (site / "reference" / "algorithms" / downloads[0]).read_text()


def test_settings_are_those_of_the_command(site: Path) -> None:
    from accord.experiments.reference import keys

    page = (site / "reference" / "settings.html").read_text()
    assert all(f">{key.partition('.')[2]}<" in page for key, _, _ in keys())


def test_equations_need_no_script_and_pages_no_network(site: Path) -> None:
    page = (site / "reference" / "algorithms" / "gma.html").read_text()
    assert "<math " in page
    for path in site.rglob("*.html"):
        assert not re.search(r'<(script|link|img)[^>]*(src|href)="https?://', path.read_text()), path.name


def test_figures_are_small_and_made_by_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="figures are drawn with matplotlib: pip install 'accord-fl[plot]'")
    figures = sorted((DOCS / "figures").glob("*.svg"))
    pages = "".join((DOCS / "explanation" / page).read_text() for page in ("concepts.md", "judge.md"))
    assert [path.name for path in figures] == ["agreement.svg", "judge.svg", "round.svg", "three-ways.svg"]
    assert all(path.stat().st_size < 150_000 and f"figures/{path.name}" in pages for path in figures)
    # no background, and no black, which would vanish on a dark page: text and axes have a colour of their own
    assert not [path.name for path in figures if re.search("fill: #(ffffff|000000)|stroke: #000000", path.read_text())]
    monkeypatch.syspath_prepend(DOCS / "figures")
    spec = importlib.util.spec_from_file_location("make_figures", DOCS / "figures" / "make.py")
    assert spec is not None and spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    monkeypatch.setattr(make, "HERE", tmp_path)
    make.a_round()  # the others train for half a minute
    assert (tmp_path / "round.svg").stat().st_size > 10_000
