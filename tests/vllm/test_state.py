"""What is kept between two wrappers (`lswap.vllm.state`), and the log of the daemon (`lswap.vllm.daemon_log`)."""

from __future__ import annotations

import os
import pathlib
import stat
import subprocess
import sys
import tempfile

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from lswap.net.birth import birth_of
from lswap.vllm import daemon_log
from lswap.vllm.daemon_log import DaemonLog, open_for_daemon
from lswap.vllm.state import Lock, Record, ServerState, StateError, folder_for


class FolderTests(SynchronousTestCase):
    """Where the files are."""

    def setUp(self) -> None:
        """A home."""
        self.home = pathlib.Path(self.mktemp()).resolve()
        self.home.mkdir()

    def test_places(self) -> None:
        """What is given, the state directory, the home; made with rights for the user alone."""
        home = str(self.home)
        for given, environ, place in (
            (home + "/given", {"HOME": home}, home + "/given"),
            ("", {"XDG_STATE_HOME": home + "/state", "HOME": home}, home + "/state/lswap-vllm"),
            ("", {"XDG_STATE_HOME": "relative", "HOME": home}, home + "/.local/state/lswap-vllm"),
        ):
            for _ in range(2):
                folder = folder_for(given, environ)
                self.assertEqual(folder, pathlib.Path(place))
            self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)

    def test_without_a_home(self) -> None:
        """Users of services may have none: a folder of the system, which nobody else may write to."""
        self.patch(tempfile, "tempdir", str(self.home))
        place = self.home / f"lswap-vllm-{os.getuid()}"
        self.assertEqual(folder_for("", {"HOME": "/proc/nonexistent"}), place)
        place.chmod(0o777)
        error = self.assertRaises(StateError, folder_for, "", {})
        self.assertIn("others may write there", str(error))

    def test_no_place(self) -> None:
        """The error names it."""
        error = self.assertRaises(StateError, folder_for, "/proc/nonexistent", {})
        self.assertIn("/proc/nonexistent", str(error))


class StateCase(SynchronousTestCase):
    """A folder."""

    def setUp(self) -> None:
        """It is empty."""
        self.folder = pathlib.Path(self.mktemp())
        self.folder.mkdir()
        self.state = ServerState(self.folder, "http://127.0.0.1:8000")


class LockTests(StateCase):
    """Locks."""

    def lock(self) -> Lock:
        """A lock on the same file, as another process has it."""
        return Lock(self.folder / "x")

    def test_one_alone(self) -> None:
        """The other has to wait until it is released; taking it twice is no matter."""
        one, two = self.lock(), self.lock()
        self.assertTrue(one.take() and one.take())
        self.assertFalse(two.take())
        one.release()
        one.release()
        self.assertTrue(two.take())
        two.release()

    def test_together(self) -> None:
        """Shared ones keep one out who wants it alone; the last of them may have it so."""
        one, two = self.lock(), self.lock()
        self.assertTrue(one.take(shared=True) and two.take(shared=True))
        self.assertFalse(one.take())
        two.release()
        self.assertTrue(one.take())
        one.release()

    def test_ends_with_its_holder(self) -> None:
        """However that ends."""
        script = "import sys, time, fcntl; file = open(sys.argv[1], 'w'); fcntl.flock(file, 2); print(1, flush=True)"
        holder = subprocess.Popen(
            [sys.executable, "-c", script + "; time.sleep(60)", str(self.folder / "x")], stdout=subprocess.PIPE
        )
        assert holder.stdout is not None
        holder.stdout.readline()
        lock = self.lock()
        self.assertFalse(lock.take())
        holder.kill()
        holder.communicate()
        self.assertTrue(lock.take())
        lock.release()

    def test_children_do_not_inherit_it(self) -> None:
        """A daemon would hold it for ever."""
        lock = self.lock()
        lock.take()
        self.assertFalse(os.get_inheritable(lock._file))
        lock.release()

    def test_no_file(self) -> None:
        """An error, in words."""
        error = self.assertRaises(StateError, Lock(self.folder / "a/b").take)
        self.assertIn("cannot open", str(error))


class RecordTests(StateCase):
    """The daemon, and how deep it sleeps."""

    def test_kept(self) -> None:
        """What one writes another reads, and only of the same server."""
        record = Record(pid=os.getpid(), birth=birth_of(os.getpid()) or "", words=("vllm", "serve"))
        self.state.write_record(record)
        self.state.level = 2
        again = ServerState(self.folder, "http://127.0.0.1:8000")
        self.assertEqual((again.record(), again.level), (record, 2))
        self.assertTrue(record.alive)
        other = ServerState(self.folder, "http://127.0.0.1:8001")
        self.assertEqual((other.record(), other.level), (None, None))
        again.forget()
        again.forget()
        self.assertIsNone(self.state.record())

    def test_of_the_user_alone(self) -> None:
        """A command may hold a secret."""
        self.state.write_record(Record(pid=1, birth="x"))
        for path in self.folder.iterdir():
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600, path)

    def test_broken_files(self) -> None:
        """Nothing is believed of them."""
        self.state.write_record(Record(pid=1, birth="x"))
        self.state.level = 1
        for text in (b"", b"\x00\xff garbage", b"99999999\n", b"1\n", b"{}", b'{"pid": "x"}', b"[" * 10_000):
            for path in self.folder.iterdir():
                path.write_bytes(text)
            self.assertEqual((self.state.record(), self.state.level), (None, None))

    def test_dead_or_foreign(self) -> None:
        """The number alone proves nothing."""
        ours = birth_of(os.getpid()) or ""
        for pid, birth in ((os.getpid(), "other:1"), (os.getpid(), ""), (0, ours), (-1, ours), (1 << 40, ours)):
            self.assertFalse(Record(pid=pid, birth=birth).alive)

    def test_a_disk_that_is_full(self) -> None:
        """It is forgotten, and nothing else happens."""
        state = ServerState(self.folder / "nowhere", "http://x")
        state.write_record(Record(pid=1, birth="x"))
        state.level = 1
        self.assertEqual((state.record(), state.level), (None, None))

    def test_odd_urls(self) -> None:
        """Names of files stay short and plain."""
        for url in ("http://[::1]:8000/a/../b", "http://" + "x" * 1000, "https://ünï.example/%00"):
            state = ServerState(self.folder, url)
            state.level = 1
            self.assertEqual(state.level, 1)


class DaemonLogTests(StateCase):
    """What the daemon writes."""

    def setUp(self) -> None:
        """Nobody reads yet."""
        super().setUp()
        self.clock = Clock()
        self.said = b""
        self.longest = 0
        self.log = DaemonLog(self.clock, self.state.log, self.hear)

    def hear(self, data: bytes) -> None:
        """Take what is read."""
        self.said += data
        self.longest = max(self.longest, len(data))

    def write(self, data: bytes) -> None:
        """As a daemon does, which has had the file open all the time."""
        if not hasattr(self, "file"):
            self.file = open_for_daemon(self.state.log)
            self.addCleanup(os.close, self.file)
        os.write(self.file, data)

    def test_followed(self) -> None:
        """From the end that it had, also when there was no file yet; to the last word."""
        self.log.start()
        self.log.start()
        self.clock.advance(1)
        self.write(b"one")
        self.clock.advance(0.1)
        self.assertEqual(self.said, b"one")
        self.write(b"two")
        self.log.stop()
        self.log.stop()
        self.assertEqual(self.said, b"onetwo")
        self.assertEqual(self.clock.getDelayedCalls(), [])
        later = DaemonLog(self.clock, self.state.log, self.hear)
        later.start()
        self.write(b"three")
        later.stop()
        self.assertEqual(self.said, b"onetwothree")

    def test_emptied_for_a_new_daemon(self) -> None:
        """The next one begins with an empty file, and is read from its beginning."""
        self.write(b"old old old")
        self.log.start()
        os.write(open_for_daemon(self.state.log), b"new")
        self.clock.advance(0.1)
        self.assertEqual(self.said, b"new")
        self.log.stop()

    def test_stays_small(self) -> None:
        """Once read, it is emptied; nothing of it is lost."""
        self.patch(daemon_log, "LARGEST", 100_000)
        self.log.start()
        for _ in range(10):
            self.write(b"x" * 50_000)
            for _ in range(3):
                self.clock.advance(0.1)
        self.assertEqual(len(self.said), 500_000)
        self.assertLess(self.state.log.stat().st_size, 150_001)
        self.log.stop()

    def test_much_at_once(self) -> None:
        """In pieces, so that requests are served in between; all of it at the end."""
        self.log.start()
        self.write(b"x" * 1_000_000)
        self.clock.advance(0.1)
        self.assertEqual((len(self.said), self.longest), (1_000_000, 65536))
        self.write(b"x" * 200_000)
        self.log.stop()
        self.assertEqual(len(self.said), 1_200_000)
