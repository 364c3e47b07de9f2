"""What `accord analyse` computes: each module reads runs, or works something out, and gives a table and a figure
(docs/how-to/analyses.md)."""
