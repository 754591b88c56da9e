"""What the operating system refused, as one sentence that ends with the remedy."""

from __future__ import annotations

import errno

FREE = "Free some disk space and run the same command again."
ANOTHER = "Choose another place."
REMEDIES = {
    errno.ENOSPC: FREE,
    errno.EDQUOT: FREE,
    errno.EACCES: "Make it accessible for you, or choose another place.",
    errno.EPERM: "Make it accessible for you, or choose another place.",
    errno.EROFS: "Choose a place that can be written.",
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "A file stands where a folder is needed: choose another place.",
    errno.EISDIR: "A folder stands where a file is needed: choose another place.",
    errno.EEXIST: "A file stands where a folder is needed: choose another place.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EINVAL: "Choose another name or place.",
    errno.EMFILE: "Close other programs, or raise the limit of open files (`ulimit -n`).",
    errno.ENFILE: "Close other programs, or raise the limit of open files (`ulimit -n`).",
    errno.ENOMEM: "Free some memory and run the same command again.",
    errno.EIO: "The device failed: check the disk, or choose another place.",
    errno.EADDRINUSE: "Choose another port.",
}

REFUSALS = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""The user can undo these; a file that is refused with one of them may be whole."""


def is_refusal(error: BaseException | None) -> bool:
    """Tell whether the system refused a file for now, and said nothing about its content."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in REFUSALS)


def remedy_of(error: OSError) -> str:
    """Return what to do about an error of the operating system."""
    return REMEDIES.get(error.errno or 0, ANOTHER)


def explained(error: OSError) -> str:
    """Return what was refused, for which file, and what to do about it."""
    what = error.strerror or str(error) or type(error).__name__
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{what[:1].lower()}{what[1:]}. {remedy_of(error)}"
