"""accord.deploy.flower where there is no Flower. Its other tests are in integration/, and need it."""

import subprocess
import sys


def test_without_flower_a_sentence_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['flwr'] = None\ntry:\n import accord.deploy.flower\nexcept Exception as e:"
        " print(type(e).__name__, e)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert (
        told.startswith("AccordError accord.deploy.flower needs Flower 1.41")
        and "pip install 'accord-fl[flower]'" in told
    )
