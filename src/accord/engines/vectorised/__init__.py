"""All clients of a round, and all runs of a sweep, as lanes of one batched computation."""
