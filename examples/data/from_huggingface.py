# A federation from a Hugging Face dataset with a column of pictures, a column that says who wrote them, and class
# names. Run it with: pip install "accord-fl[huggingface]", then: python examples/data/from_huggingface.py With a
# network, `datasets.load_dataset(NAME, split="train")` takes the place of the dataset that is made here.

import datasets
import numpy as np
from PIL import Image

import accord

STROKES = ["bar", "dash", "dot"]


def drawing(stroke: str, ink: int, draw: np.random.Generator) -> Image.Image:
    """A grey picture of 12 x 12 pixels, in the writer's own ink."""
    pixels = draw.integers(0, 60, (12, 12), dtype=np.uint8)
    rows, columns = {
        "bar": (slice(1, 11), slice(5, 7)),
        "dash": (slice(5, 7), slice(1, 11)),
        "dot": (slice(4, 8), slice(4, 8)),
    }[stroke]
    pixels[rows, columns] = ink
    return Image.fromarray(pixels)


draw = np.random.default_rng(0)
writers = {f"writer-{number:02d}": int(draw.integers(100, 255)) for number in range(12)}
table: dict[str, list] = {"image": [], "writer": [], "label": []}
for writer, ink in writers.items():
    for stroke in draw.choice(STROKES, 40):
        table["image"].append(drawing(stroke, ink, draw))
        table["writer"].append(writer)
        table["label"].append(STROKES.index(stroke))
features = datasets.Features(
    {"image": datasets.Image(), "writer": datasets.Value("string"), "label": datasets.ClassLabel(names=STROKES)}
)
dataset = datasets.Dataset.from_dict(table, features=features)

fed = accord.data.from_huggingface(dataset, "writer", unseen=3, name="strokes")
print(fed)
print("classes:", ", ".join(fed.classes), "- stored as", fed.x.dtype, "of shape", tuple(fed.x.shape))
print(accord.fit(accord.models.logistic(size=12, classes=3), fed, accord.fedavg(), rounds=3, lr=0.01))
