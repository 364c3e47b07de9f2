"""Flower starts a Python process for every message, which imports torch: seconds each, on a machine of two cores. Here
a process that has imported it forks instead. What it runs are Flower's own programs, each in a process of its own.

    python benchmarks/warm_apps.py SOCKET                       # the process that forks
    python benchmarks/warm_apps.py SOCKET flwr-clientapp ...    # asks it to: stands in the place of that program
"""

import json
import os
import signal
import socket
import sys
import threading
import traceback


def ask(path: str, words: list[str]) -> None:
    """Hands over what a process needs, and lives as long as it does: whoever ends one ends both."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        told = json.dumps([words, dict(os.environ), os.getcwd()]).encode()
        socket.send_fds(line, [len(told).to_bytes(8, "big")], [1, 2])
        line.sendall(told)
        line.recv(1)


def serve(path: str) -> None:
    import scipy.stats  # noqa: F401
    import sklearn.datasets  # noqa: F401
    import soak_node
    import torch
    from flwr.cli.app import app as flwr
    from flwr.supercore.cli import flower_superexec
    from flwr.superlink.cli import flwr_serverapp
    from flwr.supernode.cli import flwr_clientapp

    import accord.deploy.flower  # noqa: F401

    programs = {"flwr-clientapp": flwr_clientapp, "flwr-serverapp": flwr_serverapp}
    programs |= {"flwr": flwr, "flower-superexec": flower_superexec, "flower-supernode": soak_node.main}
    sys.path.pop(0)  # this folder is none of the app's
    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(100)
    while True:
        line, _ = server.accept()
        size, outputs, *_ = socket.recv_fds(line, 8, 2)
        told = b""
        while len(told) < int.from_bytes(size, "big") and (more := line.recv(1 << 16)):
            told += more
        if not os.fork():
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, output in enumerate(outputs, start=1):
                os.dup2(output, number)
            threading.Thread(target=_end_with, args=(line,), daemon=True).start()
            _run(programs, *json.loads(told))
        for held in (*outputs, line.detach()):
            os.close(held)


def _end_with(line: socket.socket) -> None:
    line.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _run(programs: dict, words: list[str], environment: dict[str, str], folder: str) -> None:
    try:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = words
        programs[words[0]]()
    except BaseException as error:
        if not isinstance(error, SystemExit):
            traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1]) if len(sys.argv) == 2 else ask(sys.argv[1], sys.argv[2:])
