"""Agreement by layer, round by round, of a recorded run, as a heat map."""

from pathlib import Path
from typing import Any

from accord.analyses import chance, style
from accord.analyses.output import Result, mean
from accord.core.errors import AccordError
from accord.runs.checksums import read_json
from accord.runs.rows import read_rows


def read(folder: Path) -> Result:
    """The mean agreement of every parameter tensor's coordinates, in every round that had votes."""
    if not folder.is_dir():
        raise AccordError(f"there is no folder {folder}: give a run folder, as `accord show` lists them")
    read_json(folder / "experiment.json")  # says so if this is no run folder
    voted = [(row, by) for row in read_rows(folder) if (by := row.agreement_by_layer) is not None]
    if not voted:
        raise AccordError(
            f"{folder} holds no agreement: it is measured where there is a mask, such as algorithm.mask=gma"
        )
    for row, by in voted:
        if by.keys() != voted[0][1].keys():
            raise AccordError(f"{folder} is damaged: round {row.round} has not the layers of round {voted[0][0].round}")
    curves = {layer: [by[layer] for _, by in voted] for layer in voted[0][1]}
    numbers = [row.round for row, _ in voted]
    table = [
        {"layer": layer, "first": values[0], "mean": mean(values), "last": values[-1]}
        for layer, values in curves.items()
    ]
    points = [
        {"layer": layer, "round": number, "agreement": value}
        for layer, values in curves.items()
        for number, value in zip(numbers, values, strict=True)
    ]
    voters = max(row.accepted for row, _ in voted)
    note = f"votes by coin toss of {voters} clients would agree by {chance.agreement(voters):.3f} in the mean"
    return Result("layers", table, points, lambda: _draw(curves, numbers, folder.name), (note,))


def _draw(curves: dict[str, list[float]], rounds: list[int], title: str) -> Any:
    height = max(2.4, 0.28 * len(curves) + 1.2)
    figure, (axes,) = style.panels(size=(7.2, height))
    edges = [number - 0.5 for number in rounds] + [rounds[-1] + 0.5]
    picture = axes.pcolormesh(edges, range(len(curves) + 1), list(curves.values()), cmap="viridis", vmin=0.0, vmax=1.0)
    axes.set_yticks([number + 0.5 for number in range(len(curves))], list(curves))
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set(xlabel="round", ylabel="parameter tensor", title=title)
    figure.colorbar(picture, ax=axes, label="mean agreement of its coordinates (0 to 1)")
    return figure
