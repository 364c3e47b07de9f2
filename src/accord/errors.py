"""The one exception a user is meant to read: a sentence that says what was wrong, the value seen and what would be right."""


class AccordError(Exception):
    """Something the user can put right. The command line prints its sentence and exits with 2; it never shows a traceback."""
