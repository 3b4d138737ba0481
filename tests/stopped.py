"""A disk that stops at a chosen operation: the process dies, or there is no room left. Stands for `os` in `run.files`.

Run as a program, it kills itself with SIGKILL there: `python -m tests.stopped STORE OPERATION MODE`.
"""

import errno
import os
import signal
import sys

import numpy as np

import tallmc as tm
from tallmc.run import chunks, drive, files, store
from tests.registry import real

COUNTED = ("open", "write", "fsync", "replace", "unlink", "mkdir")
MODES = ("before", "torn", "after")  # the operation is not made, half of it is (of what is written), or all of it


class Dead(BaseException):
    """The process is no more: nothing may catch this and go on."""


class StoppingOS:
    """`os`, until an operation that changes the disk is the last.

    Args:
        last: Its number, from 0 on; None counts only.
        mode: One of MODES.
        die: What happens then.
    """

    def __init__(self, last=None, mode="before", die=None):
        self.last, self.mode, self.count, self.gone = last, mode, 0, False
        self.die = die or self._raise
        self.idle = die is None  # a process that lives on needs no disk to be waited for

    def _raise(self):
        raise Dead

    def __getattr__(self, name):
        real_one = getattr(os, name)
        if name not in COUNTED:
            return real_one

        def counted(*arguments):
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real_one(*arguments)
            if self.gone:
                raise Dead  # a dead process does not tidy up
            number, self.count = self.count, self.count + 1
            if name == "fsync" and self.idle:
                return None if number != self.last else self._end()
            if number != self.last:
                return real_one(*arguments)
            if self.mode == "after":
                real_one(*arguments)
            elif self.mode == "torn" and name == "write":
                real_one(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            return self._end()

        return counted

    def _end(self):
        self.gone = True
        return self.die()


class FullDisk(StoppingOS):
    """Has room for so many bytes."""

    def __init__(self, room):
        super().__init__()
        self.room = room

    def __getattr__(self, name):
        if name != "write":
            return getattr(os, name)

        def write(handle, content):
            self.room -= len(content)
            if self.room < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return os.write(handle, content)

        return write


def log_likelihood(position, row):
    return -0.5 * (row - position["mean"]) ** 2


def posterior(shift=0.0):
    rows = np.random.default_rng(0).normal(1.0, 2.0, size=2001) + shift
    return tm.Posterior(log_likelihood, np.asarray(real(rows)), temperature=60.0)


CALL = {"num_samples": 90, "num_warmup": 32, "num_chains": 2, "progress": False}


def draw(kernel=None, given=None, **options):
    """The run that tests stop."""
    kernel = kernel or tm.MetropolisHastings(tm.RandomWalk(0.3), tm.MHMinibatch(50))
    return tm.sample(given or posterior(), kernel, **{"init": {"mean": 0.0}, **CALL, **options})


def often(patch):
    """Checkpoints after every block of 16 transitions, and chunks of about 20 draws: much can be interrupted."""
    patch(store, "_SECONDS_BETWEEN", 0.0)
    patch(store, "_SHARE", float("inf"))
    patch(chunks, "_BYTES", 1000)
    patch(drive._Pace, "learned", lambda self, transitions: self.block)


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    often(setattr)
    files.os = StoppingOS(int(sys.argv[2]), sys.argv[3], _kill)
    draw(store=sys.argv[1], resume=True)
