"""The committed results are what the committed exports of runs come to."""

from pathlib import Path

import pytest

from accord.studies.export import import_runs
from accord.studies.grow import as_wide
from accord.studies.outcome import gather
from accord.studies.plan import files_in
from accord.studies.results import StudyResults, read
from accord.studies.study import POOL
from accord.studies.study_file import load

REPLICATION = Path(__file__).parents[2] / "replication"
NO_EXPORT = {"rules": 58, "tmlr-table2": 10}  # cells; docs/how-to/replication.md says which


def agreeing(name: str, pool: Path) -> int:
    """How many finished cells the runs in the pool come to; each must be the cell that is committed."""
    results = read(REPLICATION / f"results/{name}.json")
    assert isinstance(results, StudyResults)
    study, count = as_wide(load(name), results.results), 0
    for result in results.complete:
        chosen = {axis: [value] for axis, value in result.cell.values.items()}
        one = study.only(chosen).changed(seeds=sorted(result.shared_seeds))
        (again,) = gather(one, one.named(pool))
        if not again.complete:
            continue
        count += 1
        assert again.figures.keys() == result.figures.keys()
        for rule, ours in again.figures.items():
            theirs = result.figures[rule]
            assert ours.point == theirs.point and ours.by_seed.keys() == theirs.by_seed.keys(), (result.cell, rule)
            assert ours.curve == pytest.approx(theirs.curve, abs=2e-5), (result.cell, rule)  # which have five
            for seed, values in ours.by_seed.items():  # exports have nine digits
                assert values == pytest.approx(theirs.by_seed[seed], abs=1e-8), (result.cell, rule, seed)
    return count


def test_table_8_is_what_its_export_comes_to(tmp_path: Path) -> None:
    """Some of its runs were trained for other tables."""
    for file in ("tmlr-table8", "fashion-mnist-noniid-10"):
        import_runs(REPLICATION / f"runs/{file}.xz", tmp_path / POOL)
    assert agreeing("tmlr-table8", tmp_path / POOL) == 12


@pytest.mark.slow
def test_all_results_are_what_all_exports_come_to(tmp_path: Path) -> None:
    for file in sorted(REPLICATION.glob("runs/*.xz")):
        import_runs(file, tmp_path / POOL)
    for path in files_in(REPLICATION / "results")[0]:
        results = read(path)
        if isinstance(results, StudyResults):
            missing = len(results.complete) - agreeing(results.name, tmp_path / POOL)
            assert missing == NO_EXPORT.get(results.name, 0), results.name
