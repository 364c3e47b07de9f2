"""Readers: from the files of a data set, as they are published, to `Samples`. Each is a function of a path."""
