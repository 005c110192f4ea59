"""Installs the Debian package in a clean system, runs what its units run, upgrades, removes and purges it.

    python3 tests/deb/run.py dist/lswap_*.deb

Needs root, on the release that the package is for, with `mmdebstrap`, `lintian`, `systemd-analyze`, `unshare`,
`nsenter` and `ip`. The system is a folder that is entered with chroot; maintainer scripts run for real. There is no
systemd in it: `Unit.start` does what systemd would do for a service, as far as it matters to a program: the user, the
folders, the environment, a read-only system, no capabilities, a socket for notifications, an inherited port. Each
service has a network of its own, so the ports are those of the units. Standard library only. The last line has the
counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

#: Seconds for anything that should take no more than some.
PATIENCE = 60.0
#: Where packages and users are managed, and what that leaves behind for any of them.
MANAGED = re.compile(
    r"/(proc|sys|dev|tmp)/|/run/(test/|lock/|adduser$)|/var/(lib/(dpkg|apt)|cache/(apt|debconf|ldconfig)|log)/"
    r"|/etc/(passwd|group|g?shadow|subuid|subgid)-$"
)
#: A request to the model of the configuration, by nothing but what is in the system.
CLIENT = """
import json, sys, urllib.request
body = {"model": "echo", "stream": sys.argv[1] == "stream", "messages": [{"role": "user", "content": "good day"}]}
request = urllib.request.Request("http://127.0.0.1:8080/v1/chat/completions", json.dumps(body).encode(),
    {"Content-Type": "application/json"})
sys.stdout.write(urllib.request.urlopen(request, timeout=30).read().decode())
"""


def run(*words: str | os.PathLike[str], check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command with its output kept; one that fails is shown."""
    done = subprocess.run(
        [os.fspath(word) for word in words], capture_output=True, check=False, text=True, timeout=600, **more
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{shlex.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class System:
    """The clean system, in a folder."""

    def __init__(self, folder: pathlib.Path, package: pathlib.Path) -> None:
        self.folder, self.package = folder, package
        self.before: dict[str, object] = {}
        words = ["lintian", "--allow-root", "--fail-on", "error", str(package)]
        self.lintian = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def path(self, name: str) -> pathlib.Path:
        """A path in it, seen from outside."""
        return self.folder / name.lstrip("/")

    def run(self, *words: str, check: bool = True) -> str:
        """Standard output and standard error of a command in it."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}
        done = run("chroot", self.folder, *words, check=check, env=environment, cwd="/")
        return done.stdout + done.stderr

    def install(self, package: pathlib.Path) -> str:
        """Install a package file, as a person would; its dependencies are there already, and are not to be had."""
        into = self.path("/tmp") / package.name
        into.write_bytes(package.read_bytes())
        options = ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
        return self.run("apt", "install", "-y", "--no-install-recommends", *options, f"/tmp/{package.name}")

    def found(self) -> dict[str, object]:
        """Each path with what it is; for files below /etc also what is in them."""
        facts: dict[str, object] = {}
        for place, folders, files in os.walk(self.folder):
            for name in (*folders, *files):
                path = pathlib.Path(place, name)
                inside = f"/{path.relative_to(self.folder)}"
                if MANAGED.search(f"{inside}/" if path.is_dir() and not path.is_symlink() else inside):
                    continue
                state = path.lstat()
                content = path.read_bytes() if stat.S_ISREG(state.st_mode) and inside.startswith("/etc/") else b""
                facts[inside] = (state.st_mode, state.st_uid, state.st_gid, content)
        return facts

    def owner(self, name: str) -> tuple[str, str, int]:
        """User, group and mode of a file, by the names that they have in the system."""
        words = self.run("stat", "-c", "%U %G %a", name).split()
        return words[0], words[1], int(words[2], 8)

    def processes(self) -> list[int]:
        """Who runs in it."""
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdecimal() and os.readlink(f"/proc/{name}/root") == str(self.folder):
                    found.append(int(name))
        return found


class Unit:
    """A unit of the package, as it is installed."""

    def __init__(self, system: System, name: str) -> None:
        self.system, self.name = system, name
        self._lines: list[tuple[str, str]] = []
        for line in system.path(f"/lib/systemd/system/{name}").read_text().splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                self._lines.append((key, value))

    def all(self, key: str) -> list[str]:
        """All values of a key."""
        return [value for name, value in self._lines if name == key]

    def one(self, key: str, default: str = "") -> str:
        """The value of a key."""
        return next(iter(self.all(key)), default)

    def environment(self, **more: str) -> dict[str, str]:
        """What the service would find in its environment; `more` wins, as lines of `systemctl edit` do."""
        user = self.one("User", "nobody")
        found = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/usr/sbin/nologin",
            "INVOCATION_ID": "0" * 32,
        }
        if self.one("User"):
            found["HOME"] = self.system.run("getent", "passwd", user).split(":")[5]
        for key, place in (
            ("StateDirectory", "/var/lib"),
            ("CacheDirectory", "/var/cache"),
            ("RuntimeDirectory", "/run"),
        ):
            if self.one(key):
                found[re.sub("D", "_D", key).upper()] = f"{place}/{self.one(key)}"
        for line in self.all("Environment"):
            name, _, value = line.partition("=")
            found[name] = value
        for path in self.all("EnvironmentFile"):
            for line in self.system.path(path).read_text().splitlines():
                if line.strip() and not line.startswith("#"):
                    name, _, value = line.partition("=")
                    found[name] = value.strip('"')
        return found | more

    def words(self, line: str, environment: dict[str, str]) -> list[str]:
        """The words of a command: `${NAME}` is a part of one, `$NAME` stands for as many as it has."""
        found: list[str] = []
        for word in shlex.split(line):
            if re.fullmatch(r"\$[A-Z_]+", word):
                found += environment[word[1:]].split()
            else:
                found.append(re.sub(r"\$\{([A-Z_]+)\}", lambda match: environment[match[1]], word))
        return found

    @contextlib.contextmanager
    def started(self, port: str = "", **more: str) -> Iterator[Running]:
        """The service, until the end of the block, which it must have ended by itself."""
        system, environment = self.system, self.environment(**more)
        user, group = "65534", "65534"
        if self.one("User"):
            user, group = system.run("getent", "passwd", self.one("User")).split(":")[2:4]
        folders = []
        for key, default in (("STATE", "0755"), ("CACHE", "0755"), ("RUNTIME", "0755")):
            if folder := environment.get(f"{key}_DIRECTORY"):
                folders.append(folder)
                mode = int(self.one(f"{key.capitalize()}DirectoryMode", default), 8)
                system.path(folder).mkdir(exist_ok=True)
                system.path(folder).chmod(mode)
                os.chown(system.path(folder), int(user), int(group))
        told = system.path("/run/test")
        told.mkdir(exist_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(str(told / "notify"))
        (told / "notify").chmod(0o777)
        listener.settimeout(PATIENCE)
        environment |= {"NOTIFY_SOCKET": "/run/test/notify"}
        if seconds := self.one("WatchdogSec"):
            environment["WATCHDOG_USEC"] = f"{seconds}000000"
        plan = {
            "root": str(system.folder),
            "writable": [*folders, "/tmp", "/run/test"],
            "user": user,
            "group": group,
            "umask": int(self.one("UMask", "0022"), 8),
            "cwd": self.one("WorkingDirectory", "/"),
            "port": port,
            "words": self.words(self.one("ExecStart"), environment),
            "environment": environment,
        }
        log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        inside = ["unshare", "--net", "--mount", "--", sys.executable, __file__, "--inside", json.dumps(plan)]
        running = Running(self, subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=log, stderr=log), listener)
        try:
            yield running
        except BaseException:
            log.seek(0)
            print(log.read())
            raise
        finally:
            for pid in system.processes():
                os.kill(pid, signal.SIGKILL)
            running.process.wait()
            listener.close()
            (told / "notify").unlink()
            log.close()


class Running:
    """A service that was started."""

    def __init__(self, unit: Unit, process: subprocess.Popen[bytes], listener: socket.socket) -> None:
        self.unit, self.process, self._listener = unit, process, listener

    def told(self, word: str) -> None:
        """Wait until it has told its manager so."""
        heard: list[str] = []
        until = time.monotonic() + PATIENCE
        while word not in heard:
            self._listener.settimeout(0.2)
            try:
                heard += self._listener.recv(4096).decode().splitlines()
            except TimeoutError:
                assert self.process.poll() is None, f"exit code {self.process.returncode}, after {heard}"
                assert time.monotonic() < until, f"no {word}, only {heard}"

    def asked(self, kind: str) -> str:
        """The answer that a client in the same network gets."""
        words = ("nsenter", "--target", str(self.process.pid), "--net", "chroot", self.unit.system.folder)
        return run(*words, python(self.unit.system), "-I", "-c", CLIENT, kind).stdout

    def reload(self) -> None:
        """Run the unit's ExecReload."""
        environment = self.unit.environment(MAINPID=str(self.process.pid))
        for line in self.unit.all("ExecReload"):
            words = self.unit.words(line, environment)
            run("chroot", self.unit.system.folder, *words, env=environment)

    def stop(self) -> None:
        """Stop it as systemd would; it ends well, and by itself, with all that it has started."""
        self.process.terminate()
        self.told("STOPPING=1")
        code = self.process.wait(PATIENCE)
        assert code == 0, f"exit code {code}"
        until = time.monotonic() + 3
        while self.unit.system.processes() and time.monotonic() < until:
            time.sleep(0.05)
        assert not self.unit.system.processes(), "something is left running"


def inside(plan: dict[str, Any]) -> None:
    """Become the service, in namespaces that are ours alone."""
    root = plan["root"]
    run("ip", "link", "set", "lo", "up")
    run("mount", "--make-rprivate", "/")
    run("mount", "--rbind", root, root)
    run("mount", "-o", "remount,ro,bind", root)
    for folder in plan["writable"]:
        run("mount", "--bind", f"{root}{folder}", f"{root}{folder}")
        run("mount", "-o", "remount,rw,bind", f"{root}{folder}")
    run("mount", "-t", "proc", "proc", f"{root}/proc")
    run("mount", "--rbind", "/dev", f"{root}/dev")
    environment = plan["environment"]
    if plan["port"]:
        host, _, port = plan["port"].rpartition(":")
        server = socket.create_server((host, int(port)))
        os.dup2(server.fileno(), 3)
        os.set_inheritable(3, True)
        environment |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
    os.chroot(root)
    os.chdir(plan["cwd"])
    os.umask(plan["umask"])
    if "WATCHDOG_USEC" in environment:
        environment["WATCHDOG_PID"] = str(os.getpid())
    rights = ["--reuid", plan["user"], "--regid", plan["group"], "--bounding-set=-all", "--no-new-privs"]
    groups = ["--init-groups"] if environment.get("HOME") else ["--clear-groups"]
    os.execvpe("setpriv", ["setpriv", *rights, *groups, "--", *plan["words"]], environment)


def python(system: System) -> str:
    """The interpreter that the package depends on."""
    return os.path.realpath(system.path("/usr/lib/lswap/bin/python")).removeprefix(str(system.folder))


# -- what is tested, in this order --------------------------------------------------------------------------------


def lintian(system: System) -> None:
    """Debian's own checker finds no error that debian/lswap.lintian-overrides does not explain."""
    said, _ = system.lintian.communicate()
    assert system.lintian.returncode == 0, said


def install(system: System) -> None:
    """It installs without anything beside what it depends on, and without a complaint."""
    system.before = system.found()
    said = system.install(system.package)
    assert "0 upgraded, 1 newly installed, 0 to remove" in said, said
    complaints = [
        line for line in said.splitlines() if re.search("warning|error|traceback|lswap:", line, re.IGNORECASE)
    ]
    assert complaints == ["WARNING: apt does not have a stable CLI interface. Use with caution in scripts."], complaints


def rights(system: System) -> None:
    """Files that may hold keys are read by the service, or the service manager, alone; the user is a system user."""
    assert system.owner("/etc/lswap/config.yaml") == ("root", "lswap", 0o640)
    assert system.owner("/etc/default/lswap-wol") == ("root", "root", 0o600)
    user = system.run("getent", "passwd", "lswap").strip().split(":")
    assert int(user[2]) < 1000 and user[5:] == ["/var/lib/lswap", "/usr/sbin/nologin"], user
    assert "video" in system.run("id", "-Gn", "lswap").split()


def units(system: System) -> None:
    """systemd can read the units, and finds them as little exposed as models with GPUs allow."""
    for name, worst in (("lswap.service", 27), ("lswap.socket", None), ("lswap-wol.service", 18)):
        done = run("systemd-analyze", "verify", f"--root={system.folder}", "--man=no", "--recursive-errors=no", name)
        assert not done.stderr, done.stderr
        if worst is not None:
            limits = ("--offline=true", f"--root={system.folder}", f"--threshold={worst}")
            run("systemd-analyze", "security", *limits, name)


def started_at_boot(system: System) -> None:
    """The service starts with the machine; the socket and lswap-wol only when asked."""
    wanted = system.path("/etc/systemd/system")
    found = sorted(path.name for path in wanted.glob("*.wants/lswap*"))
    assert found == ["lswap.service"], found


def commands(system: System) -> None:
    """The three commands and twistd's two, as root; nothing is written below /usr thereby."""
    before = sorted(path for path in system.found() if path.startswith("/usr/"))
    version = system.run("dpkg-query", "-f", "${source:Upstream-Version}", "-W", "lswap")
    assert f"version: {version.partition('+')[0]} (" in system.run("lswap", "-version")
    for command in ("lswap-wol", "lswap-vllm"):
        assert f"Usage: {command}" in system.run(command, "-help")
    listed = system.run("/usr/lib/lswap/bin/twistd", "--help")
    assert re.search(r"^ +llamaswap ", listed, re.MULTILINE) and re.search(r"^ +lswap-wol ", listed, re.MULTILINE), (
        listed
    )
    assert "0 problems, 0 warnings" in system.run("lswap", "check", "-config", "/etc/lswap/config.yaml")
    assert sorted(path for path in system.found() if path.startswith("/usr/")) == before
    assert system.run("dpkg", "--verify", "lswap") == ""


def bytecode(system: System) -> None:
    """Each module is compiled, in the form that does not ask for times of files."""
    site = next(system.path("/usr/lib/lswap/lib").glob("python3*/site-packages"))
    tag = re.sub(r"python(\d)\.", r"cpython-\1", site.parent.name)
    sources = list(site.rglob("*.py"))
    for source in sources:
        compiled = source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"
        assert compiled.read_bytes()[4:8] == b"\1\0\0\0", compiled
    assert len(sources) > 500


def pages(system: System) -> None:
    """Manual pages and completions are there."""
    for page in ("man1/lswap.1", "man1/lswap-wol.1", "man1/lswap-vllm.1", "man5/lswap.yaml.5"):
        assert system.path(f"/usr/share/man/{page}.gz").exists(), page
    for command in ("lswap", "lswap-wol", "lswap-vllm"):
        for place in (
            "bash-completion/completions/%s",
            "zsh/vendor-completions/_%s",
            "fish/vendor_completions.d/%s.fish",
        ):
            assert system.path(f"/usr/share/{place % command}").exists(), (place, command)


def edit(system: System) -> None:
    """One line of the configuration is edited, and it is right."""
    path = system.path("/etc/lswap/config.yaml")
    lines = path.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  #echo:"))
    lines[at] = lines[at].replace("#", "", 1)
    path.write_text("\n".join(lines) + "\n")
    assert "0 problems, 0 warnings" in system.run("lswap", "check", "-config", "/etc/lswap/config.yaml")


def service(system: System) -> None:
    """The unit's command as the unit's user: ready, serves, reloads, refuses a bad reload, ends with all it started."""
    with Unit(system, "lswap.service").started() as running:
        running.told("READY=1")
        answer = json.loads(running.asked("plain"))
        assert answer["choices"][0]["message"]["content"], answer
        assert running.asked("stream").endswith("data: [DONE]\n\n")
        path = system.path("/etc/lswap/config.yaml")
        good = path.read_text()
        path.write_text(good.replace("globalTTL: 0", "globalTTL: 600"))
        running.reload()
        running.told("RELOADING=1")
        running.told("READY=1")
        path.write_text(good + "nonsense: [\n")
        try:
            running.reload()
        except AssertionError as problem:
            assert "config.yaml:" in str(problem), problem
        else:
            raise AssertionError("a reload of a wrong configuration has to fail")
        path.write_text(good)
        assert json.loads(running.asked("plain"))["choices"], "the old configuration is no longer in force"
        running.stop()
    assert system.owner("/var/lib/lswap") == ("lswap", "lswap", 0o700)


def activated(system: System) -> None:
    """The unit's command with the port of lswap.socket."""
    port = Unit(system, "lswap.socket").one("ListenStream")
    with Unit(system, "lswap.service").started(port, LSWAP_LISTEN="systemd:index=0") as running:
        running.told("READY=1")
        assert json.loads(running.asked("plain"))["choices"]
        running.stop()


def front(system: System) -> None:
    """lswap-wol's unit, with the flags that its file of defaults suggests."""
    unit = Unit(system, "lswap-wol.service")
    suggested = re.search(
        r'^# LSWAP_WOL_OPTIONS="(.*)"$', system.path("/etc/default/lswap-wol").read_text(), re.MULTILINE
    )
    assert suggested is not None
    with unit.started(LSWAP_WOL_OPTIONS=suggested[1]) as running:
        running.told("READY=1")
        running.stop()


def upgrade(system: System) -> None:
    """A higher version with another configuration in it: the edited one stays, with its owner."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name, "package")
        run("dpkg-deb", "-R", system.package, folder)
        control = folder / "DEBIAN" / "control"
        control.write_text(re.sub(r"^Version: .*$", "Version: 1000", control.read_text(), flags=re.MULTILINE))
        config = folder / "etc" / "lswap" / "config.yaml"
        config.write_text(config.read_text() + "# one more line\n")
        later = pathlib.Path(name, "lswap_1000_all.deb")
        run("dpkg-deb", "--root-owner-group", "-Znone", "-b", folder, later)
        edited = system.path("/etc/lswap/config.yaml").read_bytes()
        said = system.install(later)
    assert "1 upgraded, 0 newly installed, 0 to remove" in said, said
    assert system.run("dpkg-query", "-f", "${Version}", "-W", "lswap") == "1000"
    assert system.path("/etc/lswap/config.yaml").read_bytes() == edited
    assert system.owner("/etc/lswap/config.yaml") == ("root", "lswap", 0o640)
    assert system.path("/etc/lswap/config.yaml.dpkg-dist").exists()
    with Unit(system, "lswap.service").started() as running:
        running.told("READY=1")
        assert json.loads(running.asked("plain"))["choices"]
        running.stop()


def remove(system: System) -> None:
    """Removed: the program is gone; the configuration, the user, and what models have kept, stay."""
    (system.path("/var/lib/lswap") / "kept").write_text("a conversation")
    system.run("apt-get", "remove", "-y", "lswap")
    assert not system.path("/usr/lib/lswap").exists()
    assert "\n  echo:" in system.path("/etc/lswap/config.yaml").read_text()
    assert system.path("/var/lib/lswap/kept").exists()
    assert system.run("getent", "passwd", "lswap")


def purge(system: System) -> None:
    """Purged: every path is as it was before, and so is every file below /etc, those of users included."""
    system.run("apt-get", "purge", "-y", "lswap")
    # Of the service manager, and of these tests.
    for folder in ("/run/lswap", "/run/test"):
        if system.path(folder).exists():
            system.path(folder).rmdir()
    now = system.found()
    changed = sorted(path for path in now.keys() | system.before.keys() if now.get(path) != system.before.get(path))
    assert not changed, changed


STEPS: Sequence[Callable[[System], None]] = (
    install,
    rights,
    units,
    started_at_boot,
    commands,
    bytecode,
    pages,
    edit,
    service,
    activated,
    front,
    upgrade,
    remove,
    purge,
    lintian,
)


def codename() -> str:
    """The release of this machine."""
    facts = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return facts["VERSION_CODENAME"]


def main(words: Sequence[str]) -> int:
    """Make the system, take the steps; the exit code."""
    if words[:1] == ["--inside"]:
        inside(json.loads(words[1]))
    if os.geteuid() != 0:
        print("this needs root, to enter a system of its own", file=sys.stderr)
        return 1
    package = pathlib.Path(words[0]).resolve()
    depends = run("dpkg-deb", "-f", package, "Depends").stdout
    names = ",".join(re.split(r"[ (|]", entry.strip())[0] for entry in depends.split(","))
    begun = time.monotonic()
    passed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name, "system")
        system = System(folder, package)
        # Nothing here has to outlive a loss of power.
        fast = "--dpkgopt=force-unsafe-io"
        made = run("mmdebstrap", "--variant=minbase", fast, f"--include={names}", codename(), folder, check=False)
        if made.returncode == 0:
            made = run("unshare", "--net", "--mount", "--", "true", check=False)
        if made.returncode != 0:  # it says nothing of the package
            print(f"{made.stdout}{made.stderr}\nNo clean system can be made, or entered, on this machine.")
            system.lintian.kill()
            print(f"0 passed, 0 failed, {len(STEPS)} skipped", flush=True)
            return 0
        print(f"a clean system with {names}  {time.monotonic() - begun:.1f} s", flush=True)
        for step in STEPS:
            begun = time.monotonic()
            try:
                step(system)
            except Exception:
                traceback.print_exc(file=sys.stdout)
                print(f"FAIL  {step.__name__}", flush=True)
            else:
                passed += 1
                print(f"ok    {step.__name__}  {time.monotonic() - begun:.1f} s", flush=True)
    print(f"{passed} passed, {len(STEPS) - passed} failed", flush=True)
    return 0 if passed == len(STEPS) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
