"""What a run leaves, and how it is read back: its folder, its evaluations, its figures."""
