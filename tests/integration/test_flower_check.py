"""`accord deploy check` beside a real SuperLink."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'accord-fl[flower]'")

from accord.deploy.flower.loopback import Loopback
from accord.deploy.flower.machine import free_port, program_path

APP = Path(__file__).parents[2] / "examples" / "flower"


def check(*words: str, code: int) -> dict[str, str]:
    """What is missing: about -> sentence."""
    command = [sys.executable, "-m", "accord", "deploy", "check", "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == code, done.stdout + done.stderr
    return {one["about"]: one["sentence"] for one in json.loads(done.stdout) if not one["ok"]}


def test_the_hosts_of_a_federation_are_well_but_for_its_open_control_interface(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    federation = Loopback(APP, nodes=1, folder=tmp_path)
    try:
        federation.start_superlink()
        federation.register(0)
        assert federation.certificates is not None
        ca, crt, key = map(str, federation.certificates)
        superlink = f"localhost:{federation.port}"
        shared = "--superlink", superlink, "--ca", ca, "--state", str(state)
        listen = f"127.0.0.1:{federation.port}"
        server = "--role", "server", *shared, "--certificate", crt, "--key", key, "--listen", listen
        assert check(*server, "--app", str(APP), code=0) == {}  # the port is held by the SuperLink that runs
        node_key = str(tmp_path / "keys" / "node-0")
        node = "--role", "node", *shared, "--key", node_key, "--listen", f"127.0.0.1:{free_port(0)}"
        missing = check(*node, code=2)
        assert set(missing) == {"control"} and "starts code on every node" in missing["control"]
        federation.stop()
        missing = check(*node, code=2)
        assert set(missing) == {"SuperLink"} and missing["SuperLink"].startswith("nothing listens at")
    finally:
        federation.stop()


@pytest.mark.parametrize("program", ["flower-superlink", "flower-supernode"])
def test_units_and_containers_start_flower_with_options_that_it_has(program: str) -> None:
    """Their files cannot be run everywhere, and options come and go."""
    unit = (APP / "hosts" / f"accord-{program.removeprefix('flower-')}.service").read_text()
    compose = (APP / "hosts" / "compose.yaml").read_text()
    command = re.search(rf"ExecStart=\S+/{program}((?:.*\\\n)*.*)", unit)
    listed = re.findall(rf"- {program}\n((?: +- --.*\n)+)", compose)
    assert command and listed
    known = subprocess.run([program_path(program), "--help"], capture_output=True, text=True, check=True).stdout
    for text in (command[1], *listed):
        used = set(re.findall(r"--[a-z-]+", text))
        assert len(used) >= 4 and used <= set(re.findall(r"--[a-z-]+", known))
