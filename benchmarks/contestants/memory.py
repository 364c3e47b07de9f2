"""Memory of a process and of everything it started, as the system counts it."""

from pathlib import Path


def tree_mb(root: int) -> float:
    """MB that a process and its descendants hold now: pages several of them share count once, mapped files not at all,
    since the system can take those back at any time. 0 where there is no /proc."""
    return sum(_own_mb(pid) for pid in _descendants(root))


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()  # a program's name may hold blanks and brackets
        except OSError:  # it is gone
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _own_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (OSError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) / 1024
