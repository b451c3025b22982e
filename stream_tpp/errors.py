"""The one error that a user is meant to read."""


class StreamTppError(Exception):
    """Something the user can mend, said in one clear sentence: what is wrong, where, and what to do.

    The command line prints the sentence and exits with code 1. Subclass it only where code must tell errors apart.
    """
