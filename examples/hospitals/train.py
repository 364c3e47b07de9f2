# Four hospitals, a rule with and without a mask, and a model that is used afterwards. Each hospital in turn stays away
# from training, and the model is judged on it alone. Run it with: python examples/hospitals/train.py

import argparse
from pathlib import Path

import accord

HERE = Path(__file__).parent
NEW = [
    {"age": 61, "sex": "male", "pain": "none", "pressure": 140, "cholesterol": None, "sugar": "false", "pulse": 120},
    {
        "age": 40,
        "sex": "female",
        "pain": "atypical",
        "pressure": 120,
        "cholesterol": 200,
        "sugar": "false",
        "pulse": 170,
    },
]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on hospitals, predict for new patients.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--folder", default="runs")
    given = parser.parse_args()
    fed = accord.data.table(
        source=HERE / "patients.csv",
        client="hospital",
        label="diagnosis",
        categories=["vessels"],
        unseen=1,
        heldout=0.2,
    )
    print(fed)
    model = accord.models.logistic(features=fed.shape[0], classes=fed.outputs)
    for rule in (accord.fedavg(), accord.fedavg(mask=accord.gma(0.4))):
        run = accord.fit(model, fed, rule, rounds=given.rounds, epochs=2, lr=0.02, folder=given.folder)
        print(run)
    again = accord.load(run.folder)  # as in another process, or on another machine
    for patient in again.predict([{**patient, "slope": "flat", "vessels": 1} for patient in NEW]):
        print(patient)


if __name__ == "__main__":
    main()
