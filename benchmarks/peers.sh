#!/bin/sh
# Makes an environment for each peer of benchmarks/engines.py: .venvs/flower and .venvs/pfl, or below the folder given.
#
# torch is installed first and pinned in every later step: a looser request would fetch another build, and peers are to run on the same
# torch as accord. Besides the peer they need what accord's models import, safetensors; accord itself comes from the source tree.
set -eu

folder=${1:-.venvs}
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
torch=$(grep '^torch==' "$here/constraints.txt")
numpy=$(grep '^numpy==' "$here/constraints.txt")
safetensors=$(grep '^safetensors==' "$here/constraints.txt")

make_environment() { # name, requirement
    if [ ! -e "$folder/$1/.ready" ]; then
        "$python" -m venv "$folder/$1"
        "$folder/$1/bin/python" -m pip install --quiet "$torch" "$numpy"
        "$folder/$1/bin/python" -m pip install --quiet "$2" "$torch" "$numpy" "$safetensors"
    fi
    "$folder/$1/bin/python" - "$1" "$torch" <<'CHECK'
import sys
from importlib.metadata import version

name, wanted = sys.argv[1:]
found = version("torch").partition("+")[0]
if found != wanted.partition("==")[2]:
    sys.exit(f"{name}'s environment has torch {found}, and {wanted} is wanted: delete the environment and run this again")
CHECK
    touch "$folder/$1/.ready"
    echo "$1: $("$folder/$1/bin/python" -m pip list 2>/dev/null | grep -E '^(torch|flwr|ray|pfl|numpy) ' | tr -s ' ' | tr '\n' ',')"
}

make_environment flower 'flwr[simulation]==1.41.0'
make_environment pfl 'pfl[pytorch]==0.6.0'
