"""The lock of a database connection, as the server uses it: greenlets and threads of the pool wait
for it.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import select

import gevent
from gevent.threadpool import ThreadPool

from kbplugins.table_log import ConnectionLock

lock, pool = ConnectionLock(), ThreadPool(4)


def use(count):
    for _ in range(count):
        with lock, lock:  # reentrant
            select.select([], [], [], 0.0005)  # as a driver waits for its server


def in_pool():
    for _ in range(30):
        pool.apply(use, (10,))


waiting = [*(gevent.spawn(use, 200) for _ in range(3)), *(gevent.spawn(in_pool) for _ in range(2))]
gevent.joinall(waiting, raise_error=True)
print("done")
"""


def test_greenlets_and_threads_all_get_the_lock():
    """With a plain RLock of gevent, a thread waits for ever."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "done\n"
