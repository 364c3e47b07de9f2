"""Those who do the same work: accord's engines, a naive loop, Flower and pfl-research, each a process in an environment
of its own."""
