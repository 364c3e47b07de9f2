"""What clients remember between rounds, in memory or on disk, committed together with the run's checkpoint.

A client's state is staged by the engine and put here only once its report was accepted. On disk every put is a new version in a file
of its own; the versions that a checkpoint names stay until the next checkpoint names others, so a run that is killed between two
checkpoints finds the clients exactly as the checkpoint left them.
"""

import os
import re
from pathlib import Path

from safetensors.torch import load_file, save_file

from accord.record import State

Versions = dict[str, int]  # client -> round of the version that counts


class ClientStore:
    """Client states by client id. With a folder they live there, however many clients there are; without one, in memory."""

    def __init__(self, clients: list[str], folder: Path | None = None, versions: Versions | None = None) -> None:
        self._number = {client: number for number, client in enumerate(clients)}  # ids may hold characters a file name cannot
        self._memory: dict[str, State] = {}
        self._folder = folder
        self._current: Versions = dict(versions or {})
        self._committed: Versions = dict(versions or {})
        self._unsynced: set[Path] = set()
        if folder is not None:
            self._forget_uncommitted(folder)

    def get(self, client: str) -> State | None:
        """The client's state, or None if it never took part."""
        if self._folder is None:
            return self._memory.get(client)
        return load_file(self._file(client, self._current[client])) if client in self._current else None

    def put(self, client: str, state: State, round: int) -> None:
        """Replaces the client's state."""
        if self._folder is None:
            self._memory[client] = {name: value.clone() for name, value in state.items()}
            return
        self._folder.mkdir(exist_ok=True)
        file = self._file(client, round)
        save_file({name: value.cpu().contiguous() for name, value in state.items()}, file)
        self._unsynced.add(file)
        if client in self._current and self._current[client] != self._committed.get(client):
            self._remove(self._file(client, self._current[client]))
        self._current[client] = round

    def sync(self) -> Versions:
        """Makes every state safe on disk and says which versions a checkpoint should name."""
        for file in sorted(self._unsynced):
            with open(file, "rb") as handle:
                os.fsync(handle.fileno())
        self._unsynced.clear()
        return dict(self._current)

    def committed(self) -> None:
        """Called once the checkpoint that names the versions is on disk: what it replaced can go."""
        for client, round in self._committed.items():
            if self._current[client] != round:
                self._remove(self._file(client, round))
        self._committed = dict(self._current)

    def _file(self, client: str, round: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._number[client]:06d}-{round:06d}.safetensors"

    def _remove(self, file: Path) -> None:
        self._unsynced.discard(file)
        file.unlink(missing_ok=True)

    def _forget_uncommitted(self, folder: Path) -> None:
        keep = {self._file(client, round).name for client, round in self._committed.items()}
        for file in folder.glob("*.safetensors"):
            if re.fullmatch(r"\d{6,}-\d{6,}\.safetensors", file.name) and file.name not in keep:
                file.unlink()
