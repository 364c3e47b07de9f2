"""`accord predict`: a trained model on new rows."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from accord.cli.shared import OwnModel, Which


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.", show_default=False)],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A .csv or .parquet file with the columns of the training data.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="The CSV file to write; left out: standard output."),
    ] = None,
    which: Which = "last",
    client: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="This client's model, of a run whose clients have their own (local_only, ditto, personal parameters).",
            show_default=False,
        ),
    ] = None,
    model: OwnModel = None,
) -> None:
    """Predict labels and probabilities for the rows of a table, one row out for each row in.

    Each answer carries the columns that `data.drop` named in training, such as an id, or else its row's number, from 1.
    Values of a category that no training row had are named on standard error.

    Examples:

    * `accord predict runs/table-fedavg-1f0c2d3e4b-s0 new-patients.csv -o predicted.csv`

    * `accord predict runs/table-local_only-1f0c2d3e4b-s0 new-patients.csv --client north`

    * `accord predict runs/table-fedavg-1f0c2d3e4b-s0 new-patients.csv --model mynets:make_net`
    """
    from accord.core.errors import AccordError
    from accord.core.files import write_text
    from accord.runs.load import load

    if out is not None and out.resolve() == data.resolve():
        raise AccordError(f"{out} holds the rows to predict for: name another file to write")
    predictions = load(run, model).predict(data, which, client)
    if predictions.ignored:
        print(f"columns that the model does not read: {', '.join(predictions.ignored)}", file=sys.stderr)
    for note in predictions.notes:
        print(note, file=sys.stderr)
    if out is None:
        print(predictions.to_csv(), end="")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, predictions.to_csv())
    print(f"{len(predictions):,} predictions: {out}", file=sys.stderr)
