"""The writer of standard output, on real pipes: what it must survive is a reader that stalls or leaves."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import subprocess
import sys
import threading
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lswap.net import stdout
from lswap.net.stdout import PIECE, Stdout

#: Seconds after which a test that waits for another thread gives up.
PATIENCE = 20.0
NOTE = re.compile("\n— ([0-9]+) bytes dropped —\n".encode())


class Pipe:
    """A pipe with as little room as the system allows."""

    def __init__(self, test: SynchronousTestCase) -> None:
        self.reader, self.writer = os.pipe()
        self.room = fcntl.fcntl(self.writer, 1031, 4096)  # F_SETPIPE_SZ
        self.open = {self.reader, self.writer}
        self.test = test
        test.addCleanup(self.close, self.reader)
        test.addCleanup(self.close, self.writer)

    def close(self, fd: int) -> None:
        """Close one end, once."""
        if fd in self.open:
            self.open.remove(fd)
            os.close(fd)

    def fill(self) -> bytes:
        """Leave no room for another byte; returns what is in it now."""
        os.set_blocking(self.writer, False)
        filled = 0
        try:
            while True:
                filled += os.write(self.writer, b".")
        except BlockingIOError:
            os.set_blocking(self.writer, True)
        return b"." * filled

    def read_until(self, end: bytes) -> bytes:
        """Everything up to this text; fails if it does not come."""
        data = b""
        poll = select.poll()
        poll.register(self.reader, select.POLLIN)
        while not data.endswith(end):
            if not poll.poll(PATIENCE * 1000):
                self.test.fail(f"{end!r} did not come after {data[-200:]!r}")
            data += os.read(self.reader, 65536)
        return data


class StdoutTests(SynchronousTestCase):
    """One writer and one reader."""

    def setUp(self) -> None:
        """A pipe, and an eye on threads that die of an exception."""
        self.pipe = Pipe(self)
        self.deaths: list[threading.ExceptHookArgs] = []
        self.patch(threading, "excepthook", self.deaths.append)

    def make(self, limit: int = 100_000) -> Stdout:
        """A writer that is stopped when the test is over."""
        out = Stdout(self.pipe.writer, limit)

        def stop() -> None:
            # Closing the reading end lets a blocked write fail, so that the thread ends.
            self.pipe.close(self.pipe.reader)
            out.close(PATIENCE)
            self.assertEqual(self.deaths, [])

        self.addCleanup(stop)
        return out

    def test_what_is_written_comes_out_in_order(self) -> None:
        """Pieces are joined without a loss, a gap or a change."""
        out = self.make(stdout.LIMIT)
        pieces = [b"%d\n" % i for i in range(2000)]
        for piece in pieces:
            out.write(piece)
        self.assertEqual(self.pipe.read_until(b"\n1999\n"), b"".join(pieces))

    def test_close_writes_what_waits(self) -> None:
        """After `close`, all that was written is out."""
        out = self.make()
        out.write(b"last ")
        out.write(b"words")
        out.close(PATIENCE)
        self.assertEqual(os.read(self.pipe.reader, 100), b"last words")

    def test_close_ends_the_thread(self) -> None:
        """A closed writer leaves no thread, and may be closed again."""
        out = self.make()
        out.write(b"x")
        thread = out._thread
        assert thread is not None
        self.assertTrue(thread.daemon, "it would hold up the end of the process")
        out.close(PATIENCE)
        self.assertFalse(thread.is_alive())
        out.close(PATIENCE)

    def test_close_without_a_write(self) -> None:
        """A writer that was never used has no thread and closes at once."""
        before = threading.active_count()
        out = self.make()
        self.assertEqual(threading.active_count(), before)
        out.close()

    def test_write_after_close_is_ignored(self) -> None:
        """What comes after the end is thrown away."""
        out = self.make()
        out.close()
        out.write(b"too late")
        self.pipe.close(self.pipe.writer)
        self.assertEqual(os.read(self.pipe.reader, 100), b"")

    def test_stalled_reader_blocks_neither_write_nor_close(self) -> None:
        """With a pipe that is full, writing returns, and closing gives up in time."""
        self.pipe.fill()
        out = self.make()
        out.write(b"never read")
        out.close(0.01)
        thread = out._thread
        assert thread is not None
        self.assertTrue(thread.is_alive())

    def test_newest_is_dropped_and_counted(self) -> None:
        """Past the limit, new pieces are lost; a line in their place says how many bytes that were."""
        before = self.pipe.fill()
        out = self.make(limit=10 * (100 + PIECE))
        pieces = [b"%099d\n" % i for i in range(100)]
        for piece in pieces:
            out.write(piece)
        # The thread may have taken some of them already, when it blocked; so how many are lost is not known here.
        data = b""
        while not NOTE.search(data):
            data += self.pipe.read_until(b"\n")
        out.write(b"after\n")
        data = (data + self.pipe.read_until(b"after\n")).removeprefix(before)
        place = 0
        sent = b"".join(pieces) + b"after\n"
        for i, part in enumerate(NOTE.split(data)):
            if i % 2:
                self.assertGreaterEqual(int(part), 100)
                place += int(part)
            else:
                self.assertEqual(part, sent[place : place + len(part)])
                place += len(part)
        self.assertEqual(place, len(sent))
        self.assertTrue(data.startswith(pieces[0]))

    def test_nothing_overtakes_the_word_about_a_loss(self) -> None:
        """A small piece that would fit is dropped too, when an older one just was."""
        self.pipe.fill()
        out = self.make(limit=200)
        out.write(b"a" * 500)
        out.write(b"b")
        self.assertIs(out._thread, None, "nothing was accepted")
        self.assertEqual(out._lost, 501)

    def test_many_tiny_pieces_take_memory_too(self) -> None:
        """The limit is of the memory that waiting takes up, not of the text alone."""
        self.pipe.fill()
        out = self.make(limit=100 * PIECE)
        for _ in range(1000):
            out.write(b".")
        self.assertLess(len(out._waiting), 100)
        self.assertGreater(out._lost, 0)

    def test_reader_that_left_is_survived(self) -> None:
        """Once nobody can read, all is thrown away, without an error, and closing is quick."""
        self.pipe.close(self.pipe.reader)
        out = self.make()
        out.write(b"x")
        thread = out._thread
        assert thread is not None
        thread.join(PATIENCE)
        self.assertFalse(thread.is_alive())
        for _ in range(10):
            out.write(b"y" * 1000)
        self.assertFalse(out._waiting)
        out.close(PATIENCE)

    def test_descriptor_that_is_not_open(self) -> None:
        """A process without standard output may write all the same."""
        out = Stdout(-1)
        out.write(b"x")
        thread = out._thread
        assert thread is not None
        thread.join(PATIENCE)
        self.assertFalse(thread.is_alive())
        self.assertEqual(self.deaths, [])

    def test_descriptor_that_does_not_block(self) -> None:
        """A descriptor that somebody made non-blocking gets everything, however slowly it is read."""
        before = self.pipe.fill()
        os.set_blocking(self.pipe.writer, False)
        out = self.make()
        out.write(b"x" * 50_000 + b"end")
        self.assertEqual(self.pipe.read_until(b"end"), before + b"x" * 50_000 + b"end")

    def test_full_disk_loses_and_counts(self) -> None:
        """After an error that may pass, what could not be written is counted and the rest follows."""
        real = os.write
        failures = [OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "hung up")]

        def failing(fd: int, data: bytes) -> int:
            if fd == self.pipe.writer and failures:
                raise failures.pop()
            return real(fd, data)

        self.patch(os, "write", failing)
        self.patch(stdout, "_RETRY", 0.0)
        out = self.make()
        out.write(b"lost\n")
        self.assertEqual(self.pipe.read_until(" —\n".encode()).decode(), "\n— 5 bytes dropped —\n")
        out.write(b"second\n")
        self.assertEqual(self.pipe.read_until(b"second\n"), b"second\n")

    def test_disk_that_stays_full_does_not_hold_up_the_end(self) -> None:
        """An error that does not pass is given up when the writer is closed."""
        with open("/dev/full", "wb", buffering=0) as full:
            out = Stdout(full.fileno())
            out.write(b"x")
            thread = out._thread
            assert thread is not None
            out.close(PATIENCE)
            self.assertFalse(thread.is_alive())
        self.assertEqual(self.deaths, [])

    def test_no_more_threads(self) -> None:
        """A thread that cannot be started now is started by a later write, and nothing is lost."""
        real = threading.Thread.start
        failures = [RuntimeError("can't start new thread")]

        def failing(thread: threading.Thread) -> None:
            if failures:
                raise failures.pop()
            real(thread)

        self.patch(threading.Thread, "start", failing)
        out = self.make()
        out.write(b"first ")
        out.write(b"second")
        self.assertEqual(self.pipe.read_until(b"second"), b"first second")


class ProcessTests(SynchronousTestCase):
    """Whole processes: their end, and their forks."""

    def run_script(self, script: str) -> str:
        """What a Python process prints that runs this; it must end well and say nothing on standard error."""
        root = Path(stdout.__file__).parents[2]
        done = subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                "import os\nfrom lswap.net.stdout import standard_output\n" + script,
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=root,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_exit_writes_what_waits(self) -> None:
        """A process that simply ends loses nothing, wherever `sys.stdout` points to by then."""
        script = "import sys; sys.stdout = None\nfor i in range(5): standard_output().write(b'%d' % i)"
        self.assertEqual(self.run_script(script), "01234")

    def test_there_is_one_writer(self) -> None:
        """Everybody gets the same one, for two would mix up their lines."""
        self.assertIs(stdout.standard_output(), stdout.standard_output())

    def test_fork_in_the_middle(self) -> None:
        """Parent and child of a fork (as in daemonising) both go on, and what waited is written once."""
        script = """
out = standard_output()
for i in range(100): out.write(b'p')
child = os.fork()
out.write(b'c' if child == 0 else b'q')
if child: assert os.waitpid(child, 0)[1] == 0
"""
        self.assertEqual(sorted(self.run_script(script)), sorted("c" + "p" * 100 + "q"))

    def test_no_standard_output_at_all(self) -> None:
        """A process that was started with its standard output closed writes into the void."""
        script = "os.close(1)\nimport sys; sys.__stdout__ = None\nstandard_output().write(b'x')"
        self.assertEqual(self.run_script(script), "")
