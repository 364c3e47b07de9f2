"""The commands `accord data ...`, what they print and draw, and how they refuse."""

import colorsys
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from accord.data import DATASETS, Federation, digits, preview
from command import accord, environment, refused, run_command


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with no way to any source of data."""
    no_client = str(tmp_path_factory.mktemp("no-package-client"))
    return environment(tmp_path_factory.mktemp("cache"), PATH=no_client, https_proxy="http://127.0.0.1:9")


def batch(env: dict[str, str], cwd: Path, commands: list[list[str]]) -> list[tuple[int, str, str]]:
    """(exit code, standard output, standard error) of each command."""
    done = [run_command(cwd, *words, env=env) for words in commands]
    return [(each.returncode, each.stdout, each.stderr) for each in done]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with data of the user's own: three classes, three clients and a test set, small enough to count by
    hand."""
    y = np.array([0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 1, 2])
    client = np.array(["ann"] * 4 + ["bob"] * 2 + ["cy"] * 4 + ["ann"] * 3)
    np.savez(tmp_path / "mine.npz", x=np.zeros((13, 2)), y=y, client=client, test=np.arange(10, 13))
    (tmp_path / "my.toml").write_text(
        '[data]\nname = "digits"\nsplit = "labels"\nclients = 30\n[train]\nsample = 20\n[run]\nseeds = [3, 4]\n'
    )
    return tmp_path


# ----------------------------------------------------------------------------------------------- list and get


def test_list_says_what_is_here(env: dict[str, str], here: Path) -> None:
    path = accord(env, here, "data", "get", "digits").stdout.strip()
    assert Path(path).exists() and Path(path).parent == Path(env["ACCORD_CACHE"])
    rows = {row["name"]: row["here"] for row in json.loads(accord(env, here, "data", "list", "--json").stdout)}
    assert rows == {name: data.kept in (None, "digits") for name, data in DATASETS.items()}
    lines = accord(env, here, "data", "list").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [[name, "yes" if kept else "no"] for name, kept in rows.items()]


def test_get_says_what_a_name_is_kept_as(env: dict[str, str], here: Path) -> None:
    told = batch(
        env,
        here,
        [
            ["data", "get", "fedcmnist", "--from", "."],
            ["data", "get", "arrays", "--from", "."],
            ["data", "get", "mnsit"],
        ],
    )
    assert [code for code, _, _ in told] == [2, 2, 2]
    assert told[0][2].startswith("fedcmnist is made of mnist whenever it is used, so mnist is what is kept\naccord: ")
    assert told[1][2].startswith("accord: arrays is your own data, read where it lies") and told[1][2].count("\n") == 1
    assert told[2][2].startswith("accord: there is no data set 'mnsit'")


# --------------------------------------------------------------------------------------------------- describe


def test_describe_tells_a_federation_that_was_counted_by_hand(env: dict[str, str], here: Path) -> None:
    # Labels: ann 2, 2, 0; bob 0, 2, 0; cy 0, 0, 4; together 2, 4, 4 of 10.
    # Distances: ann 1/2 (.5 - .2 + .5 - .4 = .4), bob .6, cy .6. Effective classes: 2, 1, 1.
    lines = accord(env, here, "data", "describe", "arrays", "source=mine.npz").stdout.splitlines()
    assert lines[0] == "arrays: 13 samples, 3 participating clients (2 to 4 training samples), 0 unseen, test set of 3"
    assert [line.split() for line in lines[2:8]] == [
        ["client", "0", "1", "2", "total"],
        ["ann", "2", "2", "0", "4"],
        ["bob", "0", "2", "0", "2"],
        ["cy", "0", "0", "4", "4"],
        ["all", "participating", "2", "4", "4", "10"],
        ["test", "1", "1", "1", "3"],
    ]
    assert lines[9] == "participating: 3 clients with 10 samples, 2 to 4 each, median 4, coefficient of variation 0.28"
    assert lines[10].startswith("heterogeneity: 0.533, an even deal of these sizes: ")
    assert lines[11].startswith("effective classes per client: 1.33, an even deal: ")
    assert lines[12] == "memory: 208 B of data, 104 B of row numbers"


def test_describe_tells_every_split(env: dict[str, str], here: Path) -> None:
    ways = {
        "iid": [],
        "labels": ["classes=2"],
        "exact": ["data.classes=3"],
        "dirichlet": ["alpha=0.1"],
        "quantity": ["beta=0.5"],
    }
    commands = [
        ["data", "describe", "digits", f"split={way}", "clients=12", "unseen=3", *more, "--json"]
        for way, more in ways.items()
    ]
    results = batch(env, here, commands)
    assert [code for code, _, _ in results] == [0] * 5, results
    told = dict(zip(ways, (json.loads(out) for _, out, _ in results), strict=True))
    for portrait in told.values():
        counts = np.array([owner["counts"] for owner in portrait["owners"]])
        assert counts.shape == (12 + 3 + 1, 10) and counts.sum() == 1797
        assert [owner["samples"] for owner in portrait["owners"]] == counts.sum(1).tolist()
        assert portrait["sizes"]["participating"]["clients"] == 12 and portrait["sizes"]["unseen"]["clients"] == 3
    skew = {way: portrait["heterogeneity"] for way, portrait in told.items()}
    for way in ("iid", "quantity"):
        assert skew[way]["found"] == pytest.approx(skew[way]["by_chance"], rel=0.3), "nothing but chance"
    for way in ("labels", "exact", "dirichlet"):
        assert skew[way]["found"] > 3 * skew[way]["by_chance"]
    assert all(sum(count > 0 for count in owner["counts"]) == 3 for owner in told["exact"]["owners"][:15])
    assert (
        told["iid"]["sizes"]["participating"]["variation"] == 0
        and told["quantity"]["sizes"]["participating"]["variation"] > 0.3
    )


def test_describe_reads_an_experiment_and_cuts_a_long_table(env: dict[str, str], here: Path) -> None:
    cut = [
        "data",
        "describe",
        "my.toml",
        "data.split=dirichlet",
        "alpha=10",
        "unseen=10",
        "shift=coloured",
        "augment=crop",
    ]
    seeds = [
        ["data", "describe", "my.toml", "clients=5", "--json", *more]
        for more in ([], ["--seed", "3"], ["--seed", "4"], ["seed=4"])
    ]
    results = batch(env, here, [cut, [*cut, "--all"], *seeds])
    assert [code for code, _, _ in results] == [0] * 6, results
    lines, everything = results[0][1].splitlines(), results[1][1].splitlines()
    unseen = [line for line in lines if "(unseen)" in line]
    assert len(unseen) == 5 and lines[23].startswith("all participating") and lines[24].startswith("test ")
    assert lines[25] == "... 20 more (15 participating, 5 unseen), --all shows them"
    assert lines.index(unseen[0]) == 18, "fifteen that take part, then five that do not"
    assert len(everything) == len(lines) + 20 - 1 and sum("(unseen)" in line for line in everything) == 10
    assert "shift: coloured, palette client, colours 1, background false" in lines
    assert "augmentation: CropFlip, pad 4, flip false" in lines
    first, third, fourth, own = (json.loads(out)["owners"] for _, out, _ in results[2:])
    assert first == third != fourth == own, "the file's first seed, the one asked for, the deal's own"


def test_describe_lists_the_largest_of_many_classes_and_numbers_without_any(env: dict[str, str], here: Path) -> None:
    y = np.repeat(np.arange(25), np.arange(1, 26))  # k + 1 samples of class k
    np.savez(here / "many.npz", x=np.zeros((len(y), 2)), y=y, client=np.where(y < 3, "few", "most"))
    np.savez(here / "numbers.npz", x=np.zeros((3, 2)), y=np.array([0.0, 2.0, 4.5]), client=np.array(["a", "a", "b"]))
    many, numbers = batch(
        env, here, [["data", "describe", "arrays", f"source={name}.npz"] for name in ("many", "numbers")]
    )
    lines = many[1].splitlines()
    assert lines[2].split("  ")[0] == "client" and lines[2].endswith("largest classes")
    assert lines[3].split(maxsplit=3) == ["few", "6", "3", "2: 3, 1: 2, 0: 1"]
    assert lines[4].split(maxsplit=3) == ["most", "319", "22", "24: 25, 23: 24, 22: 23, 21: 22, 20: 21 ..."]
    lines = numbers[1].splitlines()
    assert [line.split() for line in lines[2:5]] == [
        ["client", "total", "mean", "target", "spread"],
        ["a", "2", "1", "1"],
        ["b", "1", "4.5", "0"],
    ]
    assert "(the share of the targets' variance between clients)" in numbers[1] and "classes" not in numbers[1]


def test_describe_draws_names_with_dollars(env: dict[str, str], here: Path) -> None:
    """To matplotlib, what stands between two dollars is a formula."""
    rows = [
        f"{client},{label},{number}" for number in range(4) for client in ("$a_$", "b") for label in ("$\\bad{$", "$5")
    ]
    (here / "prices.csv").write_text("\n".join(["client,label,size", *rows]))
    ((code, _, err),) = batch(env, here, [["data", "describe", "table", "source=prices.csv", "--plot", "prices.png"]])
    assert code == 0 and (here / "prices.png").read_bytes().startswith(b"\x89PNG"), err


def test_describe_draws(env: dict[str, str], here: Path) -> None:
    tall = [
        ["data", "describe", "digits", "split=exact", f"clients={clients}", "--plot", f"{clients}.png"]
        for clients in (5, 25)
    ]
    many = [["data", "describe", "digits", "clients=101", "--plot", name] for name in ("many.PDF", "many.svg")]
    assert [code for code, _, _ in batch(env, here, [*tall, *many])] == [0] * 4
    few, more = (Image.open(here / f"{clients}.png") for clients in (5, 25))
    assert few.width == more.width and few.height < more.height, "a row more for each client"
    blue = np.asarray(few.convert("RGB")).astype(int)
    assert (blue[..., 2] - blue[..., 0] > 60).mean() > 0.05, "a heat map"
    assert (here / "many.PDF").read_bytes().startswith(b"%PDF") and b"<svg" in (here / "many.svg").read_bytes()
    assert {path.name for path in here.iterdir()} == {
        "mine.npz",
        "my.toml",
        "5.png",
        "25.png",
        "many.PDF",
        "many.svg",
    }, "nothing beside them"


# ---------------------------------------------------------------------------------------------------- preview


@pytest.fixture
def dealt(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Federation:
    monkeypatch.setenv("ACCORD_CACHE", env["ACCORD_CACHE"])
    return digits(clients=4, unseen=1, split="exact", classes=3, seed=7)


def tiles(file: Path, fed: Federation, **options: int) -> tuple[preview.Sheet, dict[tuple[int, int], np.ndarray]]:
    """The sheet's plan, and the drawn pixels of each of its tiles."""
    sheet, drawn = preview.lay_out(fed, **options), np.asarray(Image.open(file))
    left = drawn.shape[1] - sheet.size[0]  # the titles' room
    assert drawn.shape == (sheet.size[1], sheet.size[0] + left, 3) and 40 < left < 200
    found = {}
    for row, strip in enumerate(sheet.strips):
        for column in range(len(strip.samples)):
            x, y = sheet.corner(row, column)
            found[row, column] = drawn[y : y + sheet.tile[1], left + x : left + x + sheet.tile[0]]
    return sheet, found


def test_preview_shows_a_clients_own_samples(env: dict[str, str], here: Path, dealt: Federation) -> None:
    words = (
        "digits",
        "clients=4",
        "unseen=1",
        "split=exact",
        "classes=3",
        "--seed",
        "7",
        "-o",
        "sheet.png",
        "--clients",
        "3",
    )
    assert accord(env, here, "data", "preview", *words).stdout == "sheet.png\n"
    sheet, drawn = tiles(here / "sheet.png", dealt, clients=3)
    assert len(sheet.strips) == 3 + 1 + 1 and sheet.captions == tuple("0123456789")
    owners = [*list(dealt.train)[:3], *dealt.unseen]
    of_each = [
        [rows[owner].tolist() for rows in (dealt.train, dealt.heldout, dealt.unseen) if owner in rows]
        for owner in owners
    ]
    owned = [{row for rows in own for row in rows} for own in of_each]
    for row, own in enumerate([*owned, set(range(1500, 1797))]):
        kinds = {int(dealt.y[sample]) for sample in own}
        for column in range(10):
            tile = drawn[row, column]
            if column not in kinds:
                assert (tile == 232).all(), "a gap"
                continue
            small = tile[::2, ::2, 0]  # every pixel is drawn twice as large
            assert (np.repeat(np.repeat(small, 2, 0), 2, 1)[..., None] == tile).all()
            mine = [sample for sample in own if dealt.y[sample] == column]
            assert any((dealt.x[sample, 0].numpy() == small).all() for sample in mine), (
                "a sample of this owner and class"
            )


def test_preview_shows_the_shift_and_has_a_name_of_its_own(env: dict[str, str], here: Path, dealt: Federation) -> None:
    options = ["clients=4", "unseen=1", "shift=coloured", "--samples", "20"]
    first, second = batch(
        env, here, [["data", "preview", "digits", *options], ["data", "preview", "digits", *options, "-o", "again.PNG"]]
    )
    assert first == (0, "preview-digits.png\n", "") and second == (0, "again.PNG\n", "")
    assert (here / "preview-digits.png").read_bytes() == (here / "again.PNG").read_bytes()
    sheet, drawn = tiles(here / "again.PNG", dealt, samples=20)
    brightest = {place: tile.reshape(-1, 3)[tile.sum(-1).argmax()] / 255 for place, tile in drawn.items()}
    hue = {place: colorsys.rgb_to_hsv(*colour)[0] for place, colour in brightest.items()}
    last = len(sheet.strips) - 1
    assert {int(20 * hue[place]) % 2 for place in hue if place[0] == last} == {1}, (
        "test colours lie in the odd cells of the circle"
    )
    assert {int(20 * hue[place]) % 2 for place in hue if place[0] < last} == {0}, "and nobody else's do"
    zeros = sorted(hue[row, 0] for row in range(last))
    assert min(np.diff(zeros)) > 0.005, "a zero has another colour at every client"


# ---------------------------------------------------------------------------------------------------- refused

NEITHER = "is neither a data set nor an experiment file"
BAD = [
    (["describe"], "Missing argument 'WHAT': see accord data describe --help"),
    (["describe", "mnsit"], f"'mnsit' {NEITHER}: did you mean 'mnist'?"),
    (["describe", "none.toml"], "there is no file none.toml"),
    (["describe", "mine.npz"], f"mine.npz {NEITHER}: for data of yours, write arrays source=mine.npz"),
    (["describe", "."], f". {NEITHER}: for data of yours, write folder source=."),
    (["describe", "digits", "labels"], "'labels' is not a setting: write key=value, such as split=labels"),
    (["describe", "digits", "model.name=cnn"], "model.name is not a setting of [data], got 'cnn'"),
    (["describe", "digits", "splt=iid"], "data.splt is not a known key, got 'iid': did you mean 'split'?"),
    (["describe", "digits", "split=iidd"], "data.split must be one of iid, labels"),
    (["describe", "digits", "classes=2"], "data.classes has no meaning with data.split = 'iid'"),
    (["describe", "digits", "split=natural"], "split 'natural' needs data that say who they come from"),
    (["describe", "digits", "clients=1501"], "data.clients must be at most the 1,500 samples"),
    (["describe", "arrays"], "data.source is missing"),
    (["describe", "digits", "--seed", "-1"], "see accord data describe --help"),
    (["describe", "digits", "--plot", "x.gif"], "--plot must be a file that ends in .png or .pdf or .svg, got 'x.gif'"),
    (
        ["describe", "digits", "--plot", "no/x.png"],
        "--plot must be a file that can be written, got 'no/x.png': there is no folder no",
    ),
    (["describe", "digits", "--plot", "my.toml/x.png"], "there is no folder my.toml"),
    (["preview", "mnsit"], f"'mnsit' {NEITHER}"),
    (
        ["preview", "arrays", "source=mine.npz"],
        "a preview shows pictures of 1 or 3 channels, and arrays holds samples of 2 numbers",
    ),
    (["preview", "digits", "--clients", "0"], "see accord data preview --help"),
    (["describe", "arrays", "source=half.npz"], "array client in half.npz has shape [12]: [13] is right"),
    (
        ["preview", "digits", "--samples", "1000000000"],
        "a sheet has room for 10,000 pictures, not for 1,000,000,000 in each of",
    ),
    (["preview", "digits", "--samples", "some"], "see accord data preview --help"),
    (["preview", "digits", "-o", "x.jpg"], "--output must be a file that ends in .png, got 'x.jpg'"),
    (["preview", "digits", "-o", "x"], "--output must be a file that ends in .png, got 'x'"),
    (
        ["preview", "digits", "-o", "folder.png"],
        "--output must be a file that can be written, got 'folder.png': it is a folder",
    ),
    (["preview", "mnist"], "mnist could not be had from anywhere"),
]


def test_bad_input_is_one_sentence_and_exit_code_two(env: dict[str, str], here: Path) -> None:
    np.savez(here / "half.npz", x=np.zeros((13, 2)), y=np.zeros(13, dtype=int), client=np.zeros(12, dtype=int))
    (here / "folder.png").mkdir()
    before = set(here.iterdir())
    for (words, sentence), (code, out, err) in zip(
        BAD, batch(env, here, [["data", *words] for words, _ in BAD]), strict=True
    ):
        assert (code, out) == (2, ""), words
        last = err.splitlines()[-1]
        assert last.startswith("accord: ") and sentence in last, (words, err)
        assert len(err.splitlines()) == 1 or "mnist" in words, err
    assert set(here.iterdir()) == before, "nothing was written"


@pytest.mark.parametrize(
    ("module", "words", "told"),
    [
        (
            "matplotlib",
            ["describe", "digits", "--plot", "x.png"],
            '--plot needs matplotlib, which is not installed: pip install "accord-fl[plot]"',
        ),
        (
            "PIL",
            ["preview", "digits"],
            'a preview is drawn with Pillow, which is not installed: pip install "accord-fl[images]"',
        ),
    ],
)
def test_a_library_that_is_missing_is_one_sentence(
    env: dict[str, str], here: Path, monkeypatch: pytest.MonkeyPatch, module: str, words: list[str], told: str
) -> None:
    for name in [module, *(loaded for loaded in sys.modules if loaded.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)  # an import of it then fails as if it were not installed
    assert refused(env, here, "data", *words) == told
