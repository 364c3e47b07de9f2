"""What the words of `accord reproduce` choose: a study, its cells, the table's rule, seeds."""

from typing import TYPE_CHECKING

from accord.core.errors import AccordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accord.studies.study import Study


def check_name(study: str, name: str) -> None:
    """Results go by names, so a file of yours must not have that of a study that comes with accord."""
    from accord.studies.files import FILES

    bundled = FILES / f"{name}.toml"
    if study.endswith(".toml") and bundled.exists() and not bundled.samefile(study):
        raise AccordError(f"{study} has the name of a study that comes with accord, and results go by names: rename it")


def chosen_cells(study: "Study", only: "Sequence[str] | None") -> "Study":
    words = ",".join(only or [])
    chosen = study.only(_axes(words))
    if not chosen.cells:
        raise AccordError(f"{study.name} has no cell with {words}: not every combination of its axes is one")
    return chosen


def table_rule(study: "Study", select: str | None) -> str:
    rule = select or ("held-out" if "held-out" in study.rules else study.rules[0])
    if rule not in study.rules:
        raise AccordError(
            f"there is no rule {rule!r} for the table of {study.name}: choose one of {', '.join(study.rules)}"
        )
    return rule


def _axes(only: str) -> dict[str, list[str]]:
    chosen: dict[str, list[str]] = {}
    for part in only.split(","):
        axis, equals, values = part.partition("=")
        if part and not (axis.strip() and equals and values):
            raise AccordError(
                f"{part!r} does not choose cells: write axis=value, such as dataset=fmnist, or dataset=mnist+fmnist"
            )
        if axis.strip() in chosen:
            raise AccordError(f"{axis.strip()} is chosen twice: write {axis.strip()}=value+value")
        if part:
            chosen[axis.strip()] = values.split("+")
    return chosen


def seed_numbers(seeds: "Sequence[str] | None") -> list[int] | None:
    if not seeds:
        return None
    words = ",".join(seeds)
    try:
        return [int(seed) for seed in words.split(",")]
    except ValueError:
        raise AccordError(f"seeds must be whole numbers joined by commas, got {words!r}") from None
