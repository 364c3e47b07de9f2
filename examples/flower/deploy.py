# The app as a deployment on this machine: a SuperLink with TLS and three SuperNodes with registered keys, each a
# process of its own. Every owner's name is bound to the key of its node. Certificates, keys, logs and the run's records
# go to the folder `deployment`. Ctrl-C stops everything. Run it with:
# python examples/flower/deploy.py [--rounds 5] [--port 9092] [--algorithm scaffold]

import argparse
import sys
from pathlib import Path

from accord.core.errors import AccordError
from accord.deploy.flower.loopback import Loopback


def main() -> int:
    here = Path(__file__).parent
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--algorithm", default="fedavg")
    options.add_argument("--port", type=int, default=0, help="the SuperLink's; 0 takes one that is free")
    options.add_argument("--folder", type=Path, default=Path("deployment"))
    asked = options.parse_args()
    records = asked.folder.resolve() / "runs"
    try:
        with Loopback(here, nodes=3, folder=asked.folder, port=asked.port) as federation:
            where = f"127.0.0.1:{federation.port}"
            print(
                f"SuperLink at {where} with TLS, three SuperNodes with keys; logs in {asked.folder / 'logs'}",
                flush=True,
            )
            keys = ",".join(map(str, federation.public_keys.values()))
            settings = {"rounds": asked.rounds, "algorithm": asked.algorithm, "folder": str(records), "keys": keys}
            federation.run(settings, tell=lambda text: print(text, end="", flush=True))
    except AccordError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on where the run was", file=sys.stderr)
        return 130
    print(f"recorded in {records}: accord show {records}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
