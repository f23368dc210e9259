#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The DaemonSet and the Job beside the Containerfile: parsed, held against the contract, the images and
(where kubectl is at hand) Kubernetes' own types. Then the DaemonSet is run as the kubelet would: its
command with its mounts in a mount namespace, a root that can't be written, no capabilities, a policy
behind the links of a ConfigMap. The images themselves run in tests/builds/image.sh.
test_manifest.py FOLDER AGENTD MPIBCTL CONTRACT"""
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

try:
    import yaml
except ImportError:
    print("SKIP: python3-yaml is missing")
    sys.exit(77)

folder, agentd, mpibctl, contract = (pathlib.Path(arg).resolve() for arg in sys.argv[1:5])
file = folder / "mpib-agentd.yaml"
manifest = yaml.safe_load(file.read_text())
containerfile = (folder / "Containerfile").read_text()


def constant(name):
    return re.search(rf'#define {name}\s+"(.*)"', contract.read_text()).group(1)


def entrypoint(target):
    """Of the image: what runs before the arguments."""
    stage = re.search(rf"^FROM \S+ AS {target}$(.*?)(^FROM|\Z)", containerfile, re.M | re.S).group(1)
    return json.loads(re.search(r"^ENTRYPOINT (.*)$", stage, re.M).group(1))


def leaves(node, path=()):
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, path + (key,))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from leaves(value, path + (index,))
    else:
        yield path, node


def at(node, path):
    for key in path:
        node = node[key]
    return node


# ---- what it says

assert manifest["apiVersion"] == "apps/v1" and manifest["kind"] == "DaemonSet"
template = manifest["spec"]["template"]
assert template["metadata"]["labels"] == manifest["spec"]["selector"]["matchLabels"]
pod = template["spec"]
assert pod["hostPID"] is True, "the agent watches the processes of jobs"
(container,) = pod["containers"]
mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
volumes = {volume["name"]: volume for volume in pod["volumes"]}
assert mounts.keys() == volumes.keys(), "each volume is mounted, each mount has a volume"
(run,) = (name for name, volume in volumes.items() if "hostPath" in volume)
(policy,) = (name for name, volume in volumes.items() if "configMap" in volume)
directory = constant("MPIB_AGENT_DIR_DEFAULT")
assert volumes[run]["hostPath"]["path"] == mounts[run] == directory, "where plugins look"
assert "command" not in container, "the image's own"
command = [*entrypoint("agent"), *container["args"]]
config = pathlib.Path(command[command.index("--config") + 1])
assert str(config.parent) == mounts[policy], "the policy is where the command looks"
for probe in ("livenessProbe", "readinessProbe"):
    # mpibctl takes three seconds to tell one that hangs; the default would kill one that is busy.
    assert 5 <= container[probe]["timeoutSeconds"] <= container[probe]["periodSeconds"]
security = container["securityContext"]
assert security["capabilities"]["drop"] == ["ALL"] and security["readOnlyRootFilesystem"]

job_file = folder / "job.yaml"
job = yaml.safe_load(job_file.read_text())
assert job["apiVersion"] == "batch/v1" and job["kind"] == "Job"
job_pod = job["spec"]["template"]["spec"]
assert job_pod["hostNetwork"], "a RoCE address belongs to the host's network device"
(carrier,), (worker,) = job_pod["initContainers"], job_pod["containers"]
job_volumes = {volume["name"]: volume for volume in job_pod["volumes"]}
(target,) = carrier["volumeMounts"]
assert f'CMD ["{target["mountPath"]}/"]' in containerfile, "where the plugin is copied to"
assert "emptyDir" in job_volumes[target["name"]] and "args" not in carrier and "command" not in carrier
job_mounts = {mount["name"]: mount for mount in worker["volumeMounts"]}
assert job_mounts.keys() == job_volumes.keys()
assert all(mount["readOnly"] for mount in job_mounts.values())
settings = {variable["name"]: variable["value"] for variable in worker["env"]}
assert settings["LD_LIBRARY_PATH"] == job_mounts[target["name"]]["mountPath"]
assert settings["NCCL_NET_PLUGIN"] == "mpib" and settings["MPIB_MODE"] == "1"
(agents,) = (name for name, volume in job_volumes.items() if "hostPath" in volume)
assert job_volumes[agents]["hostPath"]["path"] == job_mounts[agents]["mountPath"] == directory

# ---- Kubernetes' types: what they don't know is lost on the way through them

TYPED = "another-image"  # it prints only what it changed
kubectl = shutil.which("kubectl")


# Fields that came with a later minor version than the kubectl of Debian 12 has.
SINCE = {("spec", "completionMode"): 22}


def minor_version():
    said = subprocess.run([kubectl, "version", "--client", "-o", "json"], check=True, timeout=60, stdout=subprocess.PIPE)
    return int(json.loads(said.stdout)["clientVersion"]["minor"].rstrip("+"))


def plain(value):
    """A quantity as Kubernetes writes it."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


for source, parsed in ((file, manifest), (job_file, job)) if kubectl else ():
    with tempfile.TemporaryDirectory() as home:
        typed = json.loads(subprocess.run(
            [kubectl, "set", "image", "--local", "-f", source, "-o", "json", f"*={TYPED}"],
            env={"HOME": home, "PATH": os.environ["PATH"]}, check=True, timeout=60,
            stdout=subprocess.PIPE).stdout)
    for path, value in leaves(parsed):
        if tuple(path) in SINCE and SINCE[tuple(path)] > minor_version():
            continue
        try:
            found = at(typed, path)
        except (KeyError, IndexError):
            sys.exit(f"{source.name}: Kubernetes knows no {'.'.join(map(str, path))}")
        assert plain(found) == plain(TYPED if path[-1] == "image" else value), path
print("kubectl knows each field" if kubectl else "kubectl is missing: the types are not checked")

# ---- what it does

if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
    print("SKIP: mount namespaces are for root")
    sys.exit(77)

work = pathlib.Path(tempfile.mkdtemp(prefix="mpib-manifest-"))
host, configs, tools = work / "host", work / "configs", work / "bin"
for path in (host, configs / "1", tools):
    path.mkdir(parents=True)
for path in (work, host):
    path.chmod(0o755)  # as DirectoryOrCreate makes it
for program in (agentd, mpibctl):
    shutil.copy(program, tools / program.name)
(configs / "1" / "agent.ini").write_text("[policy]\ninter = 25%\n")
(configs / "..data").symlink_to("1")
(configs / "agent.ini").symlink_to("..data/agent.ini")

# /tmp and /etc as in an image: nothing of the host's. The work directory is seen by its old path.
prepare = f"""set -e
mkdir -p {work}/image/tmp {work}/image/etc {work}/work
mount --bind {work} {work}/work
mkdir -p {work}/image/tmp/mpib {work}/image{mounts[policy]}
exec 8<{work}/image/tmp 9<{work}/image/etc 7<{tools} 6<{host} 5<{configs}
mount --bind /proc/self/fd/9 /etc
mount --bind /proc/self/fd/7 /mnt
mount --bind /proc/self/fd/6 {work}/image/tmp/mpib
mount --bind /proc/self/fd/5 {mounts[policy]}
mount --rbind /proc/self/fd/8 /tmp
mount -o remount,bind,ro /
exec 5<&- 6<&- 7<&- 8<&- 9<&-
cd /
export PATH=/mnt:/usr/bin:/bin
! touch /var/x 2>/dev/null
"""
drop = "setpriv --inh-caps=-all --bounding-set=-all --no-new-privs"
agent = None
try:
    script = work / "kubelet.sh"
    script.write_text(prepare + f"exec {drop} {' '.join(command)}\n")
    agent = subprocess.Popen(["unshare", "-m", "--propagation", "private", "bash", script],
                             stderr=open(work / "log", "w"))

    def inside(words, wanted=0):
        result = subprocess.run(
            ["nsenter", "-m", "-t", str(agent.pid), "env", "PATH=/mnt:/usr/bin:/bin",
             *drop.split(), *words],
            timeout=20, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode != wanted:
            sys.exit(f"{words}: exit {result.returncode}: {result.stdout}{(work / 'log').read_text()}")
        return result.stdout

    deadline = time.monotonic() + 20
    while not (host / "agent.sock").exists():
        if agent.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"no agent: {(work / 'log').read_text()}")
        time.sleep(0.05)
    status = pathlib.Path(f"/proc/{agent.pid}/status").read_text()
    assert re.search(r"^CapEff:\t0+$", status, re.M), "no capability is left"
    inside(container["livenessProbe"]["exec"]["command"])

    # A job on the host's side of the directory.
    with socket.socket(socket.AF_UNIX) as job:
        job.settimeout(20)
        job.connect(str(host / "agent.sock"))
        job.sendall(struct.pack("=IHBBIIIII", 0x4D504952, 28, 1, 0, 1, 1, 2, 1, 2))
        answer = job.recv(16)
        assert len(answer) == 16 and answer[8] == 0, answer
        hints = (host / "hints").read_bytes()
        assert struct.unpack_from("=I", hints, 16)[0] == 256, "a quarter of 1024"
        flows = json.loads(inside(["mpibctl", "--json", "flows"]))["flows"]
        assert flows[0]["pid"] == os.getpid(), "the host's processes are seen"

        # A new ConfigMap, as the kubelet puts it in place, and the reload of the page.
        (configs / "2").mkdir()
        (configs / "2" / "agent.ini").write_text("[policy]\ninter = 75%\n")
        (configs / "..new").symlink_to("2")
        (configs / "..new").rename(configs / "..data")
        inside(["mpibctl", "reload"])
        assert struct.unpack_from("=I", (host / "hints").read_bytes(), 16)[0] == 768

    agent.terminate()
    assert agent.wait(20) == 0, (work / "log").read_text()
    assert not (host / "agent.sock").exists() and (host / "hints").exists()
    print("the DaemonSet's command serves with the DaemonSet's mounts")
finally:
    if agent and agent.poll() is None:
        agent.kill()
        agent.wait()
    shutil.rmtree(work)
