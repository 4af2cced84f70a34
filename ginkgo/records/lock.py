"""Locks on open files: of two processes that want the same place, one is told.

In: an open file. Out: whether it is this process's alone.
"""

from __future__ import annotations


def lock(file: int) -> bool:
    """Take the lock of a file without waiting; it goes when the file is closed or the process ends.

    Neither all systems (Windows) nor all file systems have such locks. Where there are none it is
    up to the user that no two processes work in one place.

    Args:
        file: descriptor.

    Returns:
        False: another process has it.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
