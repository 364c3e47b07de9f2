"""What every room speaks in: a model as a vector, records and reports, rounds, keyed draws, schedules, losses, files,
errors."""
