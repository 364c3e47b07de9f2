"""A trained model as an ONNX file: scaling included, probabilities or values as outputs, and names in its metadata."""

import importlib.util
import json
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.core.files import write_whole
from accord.data.federated import Scale
from accord.data.preparation import Preparation
from accord.engines.model_inputs import answer_of
from accord.runs.predictor import answer


class _Whole(nn.Module):
    """From stored samples to answers."""

    def __init__(self, module: nn.Module, preparation: Preparation) -> None:
        super().__init__()
        self.module, self.preparation = module, preparation

    def forward(self, x: Tensor) -> Tensor:
        return answer(answer_of(self.module, None, self.preparation.scale(x)), self.preparation)


def export(module: nn.Module, preparation: Preparation, path: Path) -> Path:
    """Writes the model. Its input `x` is what the model reads before scaling: of a table, one number for each of the
    names under `inputs` in its metadata, which holds all of `preparation.json`."""
    if importlib.util.find_spec("onnx") is None:
        raise AccordError('run.export() needs onnx, which is not installed: pip install "accord-fl[onnx]"')
    import onnx

    if preparation.fields is not None:
        raise AccordError(
            f"run.export() writes models of one input, and this one takes {preparation.fields}: use"
            " torch.onnx.export on run.model()"
        )
    sample = torch.zeros(2, *preparation.shape)
    if isinstance(preparation.scaling, Scale):
        sample = sample.to(torch.uint8)
    beside = path.with_name(f".{path.name}.part")
    answers = "values" if preparation.regression else "probabilities"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the exporter that needs no further package is the older one
            torch.onnx.export(
                _Whole(module, preparation).eval(),
                (sample,),
                str(beside),
                input_names=["x"],
                output_names=[answers],
                dynamic_axes={"x": {0: "rows"}, answers: {0: "rows"}},
                dynamo=False,
            )
        written = onnx.load(str(beside))
        properties = {"preparation": preparation.to_json(), "inputs": preparation.inputs, "classes": preparation.names}
        onnx.helper.set_model_props(written, {name: json.dumps(value) for name, value in properties.items()})
        write_whole(path, written.SerializeToString())
    finally:
        beside.unlink(missing_ok=True)
    return path
