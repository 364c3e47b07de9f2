"""What a client remembers between rounds, on its own disk: SCAFFOLD's control variate, by experiment and client.

A SuperNode forgets everything when it ends, so nothing of this is left to it. What a round leaves behind is pending
until the server says that the report was accepted: the next task names the version that counts, and the one that the
server's last checkpoint names, to which a server that was killed goes back. All others are removed. What a client needs
for a round's second exchange waits here too, since a SuperNode starts a process for every message.
"""

import hashlib
import re
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from accord.core.errors import AccordError
from accord.core.files import write_tensors
from accord.core.record import State


class ClientMemory:
    """One client's versions, a file for each, named after the round that made it."""

    def __init__(self, folder: Path, experiment: str, client: str) -> None:
        self.client, self.folder = client, client_folder(folder, experiment, client)

    def at(self, version: int, kept: int) -> State | None:
        """The state that counts, or None if the client has none yet. Versions that count no more are removed."""
        for file in self.folder.glob("*.safetensors"):
            if file.stem not in (str(version), str(kept)):
                file.unlink(missing_ok=True)
        if version == 0:
            return None
        file = self.folder / f"{version}.safetensors"
        try:
            return load_file(file)
        except (OSError, SafetensorError) as error:
            raise AccordError(
                f"what client {self.client} remembers of round {version} cannot be read from {file}: {error}"
            ) from None

    def pending(self, round: int, state: State) -> None:
        """Keeps what the client will remember if the server accepts its report of this round."""
        self._write(f"{round}.safetensors", state)

    def keep(self, round: int, state: State) -> None:
        """Keeps what the round's second exchange will ask for, and nothing of a round before."""
        for file in self.folder.glob("again-*.safetensors"):
            file.unlink(missing_ok=True)
        self._write(f"again-{round}.safetensors", state)

    def kept(self, round: int) -> State:
        """What was kept for the round's second exchange. It is handed out once."""
        file = self.folder / f"again-{round}.safetensors"
        try:
            state = load_file(file)
            file.unlink()
        except (OSError, SafetensorError) as error:
            raise AccordError(
                f"what client {self.client} kept in round {round} cannot be read from {file}: {error}"
            ) from None
        return state

    def _write(self, name: str, state: State) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_tensors(self.folder / name, state)
        except OSError as error:
            raise AccordError(
                f"client {self.client} cannot keep what it remembers in {self.folder}: {error.strerror}"
            ) from None


def client_folder(folder: Path, experiment: str, client: str) -> Path:
    """Where a client keeps what belongs to an experiment."""
    return folder / _safe(experiment) / _safe(client)


def _safe(name: str) -> str:
    """A file name for any name: the server chooses the experiment's, and must not be able to choose a place."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', name)[:40]}-{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}"
