# The app in Flower's simulation: three nodes in one process pool, no network. Nodes have no registered keys here: it is
# a test on one machine. Run it with: python examples/flower/simulate.py

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns of what it may do one day

from digits.client import app as client
from digits.server import app as server
from flwr.simulation import run_simulation

if __name__ == "__main__":
    run_simulation(
        server, client, num_supernodes=3, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    )
