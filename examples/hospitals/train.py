# Four hospitals, a rule with and without a mask, each hospital in turn kept away from training; then the model of all
# hospitals, used for new patients. Run it with: python examples/hospitals/train.py

import argparse
from pathlib import Path

import accord

PATIENTS = Path(__file__).parent / "patients.csv"
NEW = {  # a dict of columns; None is a value that is missing
    "age": [61, 40],
    "sex": ["male", "female"],
    "pain": ["none", "atypical"],
    "pressure": [140, 120],
    "cholesterol": [None, 200],
    "sugar": ["false", "false"],
    "pulse": [120, 170],
    "slope": ["flat", "flat"],
    "vessels": [1, 1],
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on hospitals, predict for new patients.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--folder", default="runs")
    given = parser.parse_args()
    training = {"rounds": given.rounds, "epochs": 2, "lr": 0.02}
    fed = accord.data.table(source=PATIENTS, client="hospital", label="diagnosis", categories=["vessels"], heldout=0.2)
    print(fed)
    model = accord.models.logistic(features=fed.shape[0], classes=fed.outputs)
    rules = [accord.fedavg(), accord.fedavg(mask=accord.gma(0.4))]
    print(accord.leave_one_out(model, fed, rules, seeds=[0, 1, 2], **training))

    run = accord.fit(model, fed, accord.fedavg(), folder=given.folder, **training)
    again = accord.load(run.folder)  # as in another process, or on another machine
    for patient in again.predict(NEW):
        print(patient)


if __name__ == "__main__":
    main()
