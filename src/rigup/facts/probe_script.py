"""The script that a probe runs on a host: plain sh, since a bare host has nothing else, and Python for NVML."""

from __future__ import annotations

import base64
import importlib.util
import textwrap
import zlib
from functools import lru_cache
from pathlib import Path

import rigup.programs
from rigup import layout

# One function, so that the shell has read all of standard input before anything runs that could read from it too.
_SCRIPT = r"""
probe() {
export LC_ALL=C TZ=UTC PATH="$PATH:/usr/sbin:/sbin"
within() { timeout -k 2 "$@" 2>/dev/null; }
. /etc/os-release 2>/dev/null; echo "os ${ID:-unknown}-${VERSION_ID:-}"; echo "os_name ${PRETTY_NAME:-unknown}"
echo "arch $(uname -m)"; echo "kernel $(uname -r)"; echo "clock $(date +%s)"; echo "hostname $(uname -n)"
echo "boot_id $(cat /proc/sys/kernel/random/boot_id)"
echo "init $(cat /proc/1/comm)"; echo "cpus $(nproc)"
echo "memory_kib $(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)"
for folder in /opt /var/lib /etc /tmp; do
  writable=no; [ -w "$folder" ] && writable=yes
  echo "disk $folder $writable $(within 10 df -Pk "$folder" |
    sed -n '2s/^.* \([0-9][0-9]*\)  *[0-9][0-9]*  *\([0-9][0-9]*\)  *[0-9]*% /\1 \2 /p')"
done
for node in /sys/devices/system/node/node[0-9]*; do
  [ -r "$node/meminfo" ] || continue
  echo "numa ${node##*/node} $(sed -n 's/.*MemTotal: *\([0-9]*\).*/\1/p' "$node/meminfo") $(cat "$node/cpulist")"
done
within 10 ss -Hltnp |
sed -n 's/^[^ ]* *[^ ]* *[^ ]* *\([^ ]*\):\([0-9]*\) .*(("\([^"]*\)",pid=\([0-9]*\).*/\2 \1 \4 \3/p' |
while read -r port address pid program; do
  echo "port $port $address $(grep -o '[^/]*\.service' "/proc/$pid/cgroup" 2>/dev/null | tail -n1 || true)|$program"
done
for image in /boot/vmlinuz-*; do [ -e "$image" ] && echo "kernel_installed ${image#/boot/vmlinuz-}"; done
for modules in /lib/modules/*; do [ -e "$modules/build/Makefile" ] && echo "headers ${modules##*/}"; done
if [ -d /sys/firmware/efi ]; then
  for variable in /sys/firmware/efi/efivars/SecureBoot-*; do
    [ -r "$variable" ] && echo "secure_boot $(within 5 od -An -tu1 -j4 -N1 "$variable" | tr -d ' ')"
  done
else
  echo "secure_boot none"
fi
within 20 dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}\n' |
grep -E '^h|\|[^|]*nvidia[^|]*\||\|(cuda|libcuda|libcublas|nvlsm|unattended-upgrades)' |
sed 's/^/package /'
within 10 apt-config dump APT::Periodic::Unattended-Upgrade Unattended-Upgrade::Package-Blacklist | sed 's/^/apt /'
{ [ -d /sys/module/nouveau ] || grep -qs '^nouveau ' /proc/modules; } && echo "nouveau yes"
for device in /sys/bus/pci/devices/*; do
  { read -r vendor < "$device/vendor" && read -r class < "$device/class"; } 2>/dev/null || continue
  [ "$vendor" = 0x10de ] || continue
  number=unknown node=-1; { read -r number < "$device/device"; read -r node < "$device/numa_node"; } 2>/dev/null
  echo "pci ${device##*/} $class ${number:-unknown} ${node:--1}"
done
version=/proc/driver/nvidia/version
[ -r $version ] && sed -n 's/^NVRM version: /driver /p' $version
for switch in /proc/driver/nvidia-nvswitch/devices/*; do [ -e "$switch" ] && echo "nvswitch ${switch##*/}"; done
for card in /proc/driver/nvidia/gpus/*; do
  [ -r "$card/information" ] || continue
  model=$(sed -n 's/^Model:[[:space:]]*//p' "$card/information")
  echo "card ${card##*/} $(sed -n 's/^GPU UUID:[[:space:]]*//p' "$card/information") $model"
done
for library in $(within 10 ldconfig -p | sed -n 's/.*libnvidia-ml\.so\.1 .*=> //p') \
  /usr/lib/*-linux-gnu/libnvidia-ml.so.1 /usr/lib64/libnvidia-ml.so.1 /usr/lib/libnvidia-ml.so.1; do
  [ -e "$library" ] && break; library=
done
[ -n "$library" ] && echo "library $(basename "$(readlink -f "$library")")"
within 10 systemctl show nvidia-fabricmanager.service --property=LoadState,ActiveState,UnitFileState |
sed 's/^/fabric /'
for build in @BUILDS@/*/manifest.json; do
  [ -f "$build" ] || continue; name=${build%/manifest.json}; name=${name##*/}; echo "build $name"
  tr -d ' \n' < "$build" | grep -o '"made_for":{[^}]*}' | sed "s/^\"made_for\":/built_for $name /"
done
for receipt in @WEIGHTS@/*/*/*/.rigup-receipt.json; do [ -f "$receipt" ] && echo "weights $(dirname "$receipt")"; done
for part in @WEIGHTS@/*/*/*.incoming; do
  [ -d "$part" ] && echo "incoming ${part%.incoming} $(du -sk "$part" | cut -f1)"
done
for service in @CONFIGURATION@/services/*/; do
  [ -d "$service" ] || continue; name=$(basename "$service"); unit=rigup-$name.service
  echo "service $name $(basename "$(readlink "$service/current" 2>/dev/null || echo none)")"
  within 10 systemctl show "$unit" --property=ActiveState,SubState,NRestarts,ActiveEnterTimestamp,DropInPaths |
  sed "s/^/unit $name /"
  [ -f "$service/current/release.json" ] && printf 'release %s %s\n' "$name" "$(cat "$service/current/release.json")"
done
if [ -n "$library" ] || [ -r $version ]; then
  if command -v python3 >/dev/null; then
    within @NVML_SECONDS@ python3 -I - <<'RIGUP_NVML' || echo 'nvml {"error": "NVML could not be asked: Python failed"}'
@NVML@
RIGUP_NVML
  else
    echo 'nvml {"error": "NVML could not be asked: there is no python3"}'
  fi
fi
true
}
probe </dev/null
"""

# nvidia-ml-py is one module of pure Python: it travels along, and nothing is left on a host that rigup has not made its
# own. On one that it has, root's compiled copy is kept: to compile it takes longer than to ask NVML.
_NVML = '''
import base64, hashlib, marshal, os, sys, types, zlib
def load(name, packed):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compiled(name, packed), module.__dict__)
    return module
def compiled(name, packed):
    source = base64.b64decode(packed)
    kept = "@CACHE@/.%s-%s-%s" % (name, sys.implementation.cache_tag, hashlib.sha256(source).hexdigest()[:16])
    try:
        with open(kept, "rb") as file:
            if os.geteuid() == 0 and os.fstat(file.fileno()).st_uid == 0:
                return marshal.load(file)
    except (OSError, ValueError, EOFError, TypeError):
        pass
    code = compile(zlib.decompress(source), name, "exec")
    try:
        if os.geteuid() == 0:
            with open(kept + ".new", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                marshal.dump(code, file)
            os.replace(kept + ".new", kept)
    except OSError:
        pass
    return code
load("pynvml", """
@PYNVML@
""")
sys.exit(load("probe_gpus", """
@PROGRAM@
""").main())
'''

# longer than the program's own limit, which leaves what it has learned by then
_NVML_SECONDS = 55


@lru_cache(maxsize=1)
def script() -> str:
    """The whole script, for the standard input of `sh -s`."""
    program = Path(rigup.programs.__file__).parent / "probe_gpus.py"
    nvml = (
        _NVML.replace("@CACHE@", layout.CACHE)
        .replace("@PYNVML@", _packed(_nvml_module()))
        .replace("@PROGRAM@", _packed(program))
    )
    return (
        _SCRIPT.replace("@BUILDS@", layout.BUILDS)
        .replace("@WEIGHTS@", layout.WEIGHTS)
        .replace("@CONFIGURATION@", layout.CONFIGURATION)
        .replace("@NVML_SECONDS@", str(_NVML_SECONDS))
        .replace("@NVML@", nvml)
    )


def _nvml_module() -> Path:
    """Where nvidia-ml-py's one module lies; it is sent, not imported here."""
    found = importlib.util.find_spec("pynvml")
    assert found is not None and found.origin is not None
    return Path(found.origin)


def _packed(path: Path) -> str:
    return "\n".join(textwrap.wrap(base64.b64encode(zlib.compress(path.read_bytes())).decode(), 100))
