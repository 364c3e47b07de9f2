"""Flower starts a Python process for every message, which imports torch: seconds each, on a machine of two cores. Here
a process that has imported it forks instead. What it runs are Flower's own apps, each in a process of its own.

    python benchmarks/warm_apps.py SOCKET                       # the process that forks
    python benchmarks/warm_apps.py SOCKET flwr-clientapp ...    # asks it to: stands in the place of that program
"""

import json
import os
import signal
import socket
import sys
import traceback


def ask(path: str, words: list[str]) -> None:
    """Hands over what a process needs, and ends: Flower waits for the app's answer, not for its process."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        line.sendall(json.dumps([words, dict(os.environ), os.getcwd()]).encode())


def serve(path: str) -> None:
    import scipy.stats  # noqa: F401
    import sklearn.datasets  # noqa: F401
    import torch
    from flwr.superlink.cli import flwr_serverapp
    from flwr.supernode.cli import flwr_clientapp

    import accord.deploy.flower  # noqa: F401

    sys.path.pop(0)  # this folder is none of the app's
    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(100)
    while True:
        line, _ = server.accept()
        with line, line.makefile("rb") as asked:
            words, environment, folder = json.load(asked)
        if os.fork():
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        server.close()
        try:
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(folder)
            sys.argv = words
            {"flwr-clientapp": flwr_clientapp, "flwr-serverapp": flwr_serverapp}[words[0]]()
        except BaseException as error:
            if not isinstance(error, SystemExit):
                traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1]) if len(sys.argv) == 2 else ask(sys.argv[1], sys.argv[2:])
