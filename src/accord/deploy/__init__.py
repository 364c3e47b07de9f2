"""Out of the simulator: the same algorithms in a federation of real machines."""
