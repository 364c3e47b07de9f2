"""Training: `fit`, the loop, who takes part, what is saved, and who is told."""
