"""The readers/writer lock."""

from __future__ import annotations

import threading

import pytest

from kbcore.state.locks import ReadWriteLock


def test_readers_share_and_a_waiting_writer_goes_before_later_readers():
    lock, order = ReadWriteLock(), []
    writer_done, reader_done = threading.Event(), threading.Event()

    def write():
        with lock.write():
            order.append("writer")
        writer_done.set()

    def read():
        with lock.read():
            order.append("reader")
        reader_done.set()

    with lock.read():
        with_first = threading.Thread(target=write)
        with_first.start()
        while not lock._writers_waiting:
            writer_done.wait(0.001)
        late = threading.Thread(target=read)
        late.start()
        assert not reader_done.wait(0.02)
        assert order == []
    assert writer_done.wait(20)
    assert reader_done.wait(20)
    assert order == ["writer", "reader"]
    with_first.join(20)
    late.join(20)


def test_two_readers_hold_the_lock_together():
    lock, inside = ReadWriteLock(), threading.Barrier(2)

    def read():
        with lock.read():
            inside.wait(20)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not inside.broken


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_writer_that_ends_while_waiting_leaves_the_lock_free(error):
    lock, done = ReadWriteLock(), []

    def interrupted():
        raise error

    lock.before += [lambda: done.append("the other"), interrupted]
    with pytest.raises(error), lock.write():
        done.append("never")
    assert not lock.written
    with lock.write():
        done.append("writer")
    with lock.read():
        done.append("reader")
    assert done == ["the other", "writer", "reader"]
