#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make.py AGENTD DIR: what a daemon of an earlier version leaves behind when it is killed under
living jobs, kept for test_e2e_earlier.c: hints, state, and overrides where it knows them. As root.
"""
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

POLICY = """[agent]
slots = 16
[islands]
a = 10.0.1.0/24
b = 10.0.2.0/24
[policy]
inter = 333
[flow 10.0.1.1 10.0.2.9]
share = 77
"""
MAGIC = 0x4D504952
# A job's connections: id, SOUT addresses, and whether it ends again.
JOBS = (
    ((0x10001, "10.0.1.1", "10.0.2.1", False), (0x10002, "10.0.1.1", "10.0.1.2", False),
     (0x10003, "10.0.1.1", "10.0.2.9", False)),
    ((0x20001, "10.0.1.1", "10.0.2.1", False), (0x20002, "10.0.1.1", "10.0.2.3", True),
     (0x20003, "10.0.1.1", "10.0.2.4", False)),
    ((0x30001, "10.0.1.1", "10.0.2.5", False),),
)


def ask(directory, message, length):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(10)
        sock.connect(os.path.join(directory, "agent.sock"))
        sock.sendall(message)
        answer = sock.recv(length, socket.MSG_WAITALL)
    return answer


def register(directory, conn, src, dst):
    body = struct.pack("<IHBBI", MAGIC, 28, 1, 0, conn)
    body += socket.inet_aton(src) + socket.inet_aton(dst)
    body += socket.inet_aton(src) + socket.inet_aton(dst)
    assert ask(directory, body, 16)[8] == 0


def deregister(directory, conn):
    assert ask(directory, struct.pack("<IHBBI", MAGIC, 12, 2, 0, conn), 12)[8] == 0


def override(directory, src, dst, share):
    """Refused by a daemon that doesn't know it."""
    body = struct.pack("<IHBB", MAGIC, 24, 69, 0)
    body += socket.inet_aton(src) + socket.inet_aton(dst) + struct.pack("<II", share, 0)
    ask(directory, body, 8)


def run_job(directory, job):
    """A process that registers and stays; its id."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        for conn, src, dst, _ in job:
            register(directory, conn, src, dst)
        for conn, _, _, ends in job:
            if ends:
                deregister(directory, conn)
        os.write(writer, b"!")
        signal.pause()
    os.close(writer)
    assert os.read(reader, 1) == b"!"
    return pid


def main():
    agentd, target = sys.argv[1:]
    with tempfile.TemporaryDirectory() as base:
        directory = os.path.join(base, "mpib")
        config = os.path.join(base, "agent.ini")
        with open(config, "w", encoding="ascii") as file:
            file.write(POLICY)
        daemon = subprocess.Popen([agentd, "--dir", directory, "--config", config])
        while not os.path.exists(os.path.join(directory, "agent.sock")):
            time.sleep(0.01)
        jobs = [run_job(directory, job) for job in JOBS]
        override(directory, "10.0.1.1", "10.0.2.4", 500)
        daemon.kill()
        daemon.wait()
        os.makedirs(target, exist_ok=True)
        for name in ("hints", "state", "overrides"):
            if os.path.exists(os.path.join(directory, name)):
                shutil.copyfile(os.path.join(directory, name), os.path.join(target, name))
        for pid in jobs:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


main()
