# SPDX-License-Identifier: Apache-2.0
"""What only computes is done beside the tests, which often wait: jobs, one after the other, on the time of the
processors that nothing else wants."""
import contextlib
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

FOLDER = Path("build/beside")


def schedule(pid, policy, nice):
    """nice is of its session, where the kernel shares time among those first."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(pid, policy, os.sched_param(0))
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


class Beside:
    """Each job is a name and its commands, of which the first that fails ends it; log(name) has what they say."""

    def __init__(self, jobs):
        self.jobs, self.status = jobs, {}
        self.process = None
        self.may_run = self.awaited = False
        self.changed = threading.Condition()
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        self.resume()
        threading.Thread(target=self.run, daemon=True).start()

    @staticmethod
    def log(name):
        return FOLDER / f"{name}.log"

    def run(self):
        for name, commands in self.jobs:
            status = 0
            with self.log(name).open("w") as log:
                try:
                    for command in commands:
                        status = status or self.command(command, log)
                except (OSError, ValueError, subprocess.SubprocessError) as error:
                    status = str(error)
            with self.changed:
                self.status[name] = status
                self.changed.notify_all()

    def command(self, command, log):
        command = command() if callable(command) else command
        with self.changed:
            self.changed.wait_for(lambda: self.may_run)
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
            if not self.awaited:
                schedule(self.process.pid, os.SCHED_IDLE, 19)
        return self.process.wait()

    def wait(self, name):
        """Until that job is over, which has no others to wait for any more; its exit status."""
        with self.changed:
            self.awaited = True
            for pid in self.processes():
                schedule(pid, os.SCHED_OTHER, 0)
            self.changed.wait_for(lambda: name in self.status)
            self.awaited = False
        return self.status[name]

    def processes(self):
        """All of a session, since Ninja gives each of its own a group."""
        if not self.process or self.process.poll() is not None:
            return []
        return map(int, subprocess.run(["pgrep", "-s", str(self.process.pid)], check=False, capture_output=True,
                                       text=True).stdout.split())

    def signal(self, *names):
        for name in names:
            for pid in self.processes():
                with contextlib.suppress(OSError):
                    os.kill(pid, getattr(signal, f"SIG{name}"))

    def pause(self):
        with self.changed:
            self.may_run = False
            self.signal("STOP")

    def resume(self):
        with self.changed:
            self.may_run = True
            self.signal("CONT")
            self.changed.notify_all()

    def end(self):
        with self.changed:
            self.may_run = False
            self.signal("CONT", "TERM")
