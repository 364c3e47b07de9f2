"""Adapters for packages that are not there: the sentence says what to install."""

import subprocess
import sys

import pytest

CODE = """
import sys
package, module = sys.argv[1:]
sys.modules[package] = None
import importlib
from accord.core.errors import AccordError
try:
    importlib.import_module(module)
except AccordError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("package", "says"), [("nvflare", "needs NVFlare 2.9 or newer"), ("pfl", "needs pfl-research 0.6 or newer")]
)
def test_the_sentence_says_which_extra_to_install(package: str, says: str) -> None:
    module = f"accord.deploy.{package}"
    done = subprocess.run([sys.executable, "-c", CODE, package, module], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(f"{module} {says} (") and done.stdout.endswith(
        f"pip install 'accord-fl[{package}]'\n"
    ), done
