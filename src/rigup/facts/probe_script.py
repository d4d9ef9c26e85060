"""The script that a probe runs on a host: plain sh, because a bare host has nothing else, and Python for NVML."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from rigup import layout
from rigup.programs import program_file

PROBE_SECONDS = 120

# The script defines functions, so that the shell has read all of standard input before a command runs that could read
# from it too. Starting processes takes most of a probe's time, so the script prefers what the shell itself can do.
_SCRIPT = r"""
within() { timeout -k 2 "$@" 2>/dev/null; }
english() { export LC_ALL=C TZ=UTC PATH="$PATH:/usr/sbin:/sbin"; }
probe() {
english
. /etc/os-release 2>/dev/null; echo "os ${ID:-unknown}-${VERSION_ID:-}"; echo "os_name ${PRETTY_NAME:-unknown}"
echo "os_like ${ID_LIKE:-}"
uname -nrm | { read -r name release machine; echo "arch $machine"; echo "kernel $release"; echo "hostname $name"; }
echo "clock $(date +%s)"; echo "cpus $(nproc)"
for fact in boot_id:/proc/sys/kernel/random/boot_id init:/proc/1/comm; do
  read -r value < "${fact#*:}" && echo "${fact%%:*} $value"
done
read -r key value unit < /proc/meminfo && echo "memory_kib $value"
virtualisation=$(within 5 systemd-detect-virt); echo "virtualisation ${virtualisation:-unknown}"
tables=/sys/firmware/dmi/tables/DMI
[ -r $tables ] && within 10 od -An -v -tu1 -N262144 $tables | awk '
{ for (i = 1; i <= NF; i++) byte[n++] = $i }
END { while (p + 4 <= n && byte[p + 1] >= 4 && byte[p] != 127) {
  for (e = p + byte[p + 1]; e + 1 < n && (byte[e] || byte[e + 1]); e++);
  if (byte[p] == 17) { s = ""; for (i = p; i < e; i++) s = s sprintf("%02x", byte[i]); print "memory_module " s }
  p = e + 2 } }'
folders=; for folder in /opt /var/lib /var/cache /etc /tmp; do [ -d $folder ] && folders="$folders $folder"; done
within 10 df -k --output=file,size,avail,target $folders | while read -r folder size free mount; do
  writable=no; [ -w "$folder" ] && writable=yes
  [ -d "$folder" ] && echo "disk $folder $writable $size $free $mount"
done
for node in /sys/devices/system/node/node[0-9]*; do
  { read -r key number total value unit < "$node/meminfo"; } 2>/dev/null || continue
  echo "numa ${node##*/node} $value $(cat "$node/cpulist")"
done
within 10 ss -Hltnp | while read -r state received sent local peer users; do
  program=${users#*\"}; program=${program%%\"*}; pid=${users#*pid=}; pid=${pid%%,*}
  case $users in *pid=*) ;; *) continue ;; esac
  unit=
  while IFS= read -r line; do
    case $line in *.service*) line=${line%.service*}.service; unit=${line##*/} ;; esac
  done 2>/dev/null < "/proc/$pid/cgroup"
  echo "port ${local##*:} ${local%:*} $unit|$program"
done
for image in /boot/vmlinuz-*; do
  [ -e "$image" ] || continue
  release=${image#/boot/vmlinuz-}; echo "kernel_installed $release"
  [ -r /proc/driver/nvidia/version ] || continue
  module=$(within 5 modinfo -k "$release" -F version nvidia) ||
  module=$(within 5 modinfo -F version "$(within 5 find "/lib/modules/$release" -name 'nvidia.ko*' | head -n 1)")
  [ -n "$module" ] && echo "kernel_module $release $module"
done
for modules in /lib/modules/*; do [ -e "$modules/build/Makefile" ] && echo "headers ${modules##*/}"; done
if [ -d /sys/firmware/efi ]; then
  for variable in /sys/firmware/efi/efivars/SecureBoot-*; do
    [ -r "$variable" ] && echo "secure_boot $(within 5 od -An -tu1 -j4 -N1 "$variable" | tr -d ' ')"
  done
else
  echo "secure_boot none"
fi
within 20 dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}|${Maintainer}\n' | sed -nE \
-e 'h;s/^.i[^|]*\|(linux-image-[a-z][^|]*|proxmox-(default-kernel|kernel-[0-9]+\.[0-9]+))\|.*/kernel_package \1/p;g' \
-e 'h;s/^.[^inc][^|]*\|([^|]*)\|.*/unfinished \1/p;g' \
-e '/^h|^[^|]*\|[^|]*nvidia|^[^|]*\|(cuda|libcuda|libcublas|nvlsm|lambda-stack|unattended-upgrades)/s/^/package /p'
[ -e /usr/bin/nvidia-uninstall ] && echo "installer yes"
[ -r /etc/dgx-release ] && (. /etc/dgx-release && echo "image DGX OS ${DGX_OTA_VERSION:-$DGX_SWBUILD_VERSION}")
[ -e /usr/bin/unattended-upgrade ] &&
within 10 apt-config dump APT::Periodic::Unattended-Upgrade Unattended-Upgrade::Package-Blacklist | sed 's/^/apt /'
{ [ -d /sys/module/nouveau ] || grep -qs '^nouveau ' /proc/modules; } && echo "nouveau yes"
for device in /sys/bus/pci/devices/*; do
  { read -r vendor < "$device/vendor" && read -r class < "$device/class"; } 2>/dev/null || continue
  [ "$vendor" = 0x10de ] || continue
  number=unknown node=-1; { read -r number < "$device/device"; read -r node < "$device/numa_node"; } 2>/dev/null
  bar=0; { read -r registers; read -r first last flags; } 2>/dev/null < "$device/resource" && bar=$((last - first + 1))
  echo "pci ${device##*/} $class ${number:-unknown} ${node:--1} $bar"
done
for device in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm; do
  [ -c "$device" ] && echo "nvidia_device ${device##*/}"
done
for switch in /proc/driver/nvidia-nvswitch/devices/*; do [ -e "$switch" ] && echo "nvswitch ${switch##*/}"; done
for card in /proc/driver/nvidia/gpus/*; do
  [ -r "$card/information" ] || continue
  model= uuid=
  while read -r key value; do
    case "$key $value" in Model:*) model=$value ;; "GPU UUID:"*) uuid=${value##*[!A-Za-z0-9-]} ;; esac
  done < "$card/information"
  echo "card ${card##*/} $uuid $model"
done
for build in @BUILDS@/*/manifest.json; do
  [ -f "$build" ] || continue; name=${build%/manifest.json}; name=${name##*/}; echo "build $name"
  noted='H;${x;s/[ \n]//g;h;s/.*"made_for":\({[^}]*}\).*/built_for \1/p;g;s/.*"built_by":"\([^"]*\)".*/built_by \1/p}'
  sed -n "$noted" "$build" | while read -r key value || [ -n "$key" ]; do echo "$key $name $value"; done
done
for wheel in @PACKAGES@/wheels/*.whl @PACKAGES@/uv/archive-v*/*; do
  case ${wheel##*/} in uv-*|smg-*) continue ;; esac
  [ -e "$wheel" ] && echo "kept_wheels yes" && break
done
for receipt in @WEIGHTS@/*/*/*/.rigup-receipt.json; do [ -f "$receipt" ] && echo "weights ${receipt%/*}"; done
for part in @WEIGHTS@/*/*/*.incoming; do
  [ -d "$part" ] && echo "incoming ${part%.incoming} $(du -sk "$part" | cut -f1)"
done
units=nvidia-fabricmanager.service
for service in @CONFIGURATION@/services/*/; do
  [ -d "$service" ] || continue; service=${service%/}; name=${service##*/}; units="$units rigup-$name.service"
  current=$(readlink "$service/current" 2>/dev/null); current=${current##*/}; echo "service $name ${current:-none}"
  [ -e "$service/stopped" ] && echo "stopped $name"
  [ -f "$service/current/release.json" ] && printf 'release %s %s\n' "$name" "$(cat "$service/current/release.json")"
done
asked=Id,LoadState,UnitFileState,ActiveState,SubState,NRestarts,ActiveEnterTimestamp,DropInPaths
within 10 systemctl show $units --property=$asked | sed 's/^/systemd /'; echo systemd
true
}
nvidia() {
english
version=/proc/driver/nvidia/version
[ -r $version ] && while IFS= read -r line; do
  case $line in "NVRM version: "*) echo "driver ${line#NVRM version: }" ;; esac
done < $version
for library in $(ldconfig -p 2>/dev/null | sed -n 's/.*libnvidia-ml\.so\.1 .*=> //p') \
  /usr/lib/*-linux-gnu/libnvidia-ml.so.1 /usr/lib64/libnvidia-ml.so.1 /usr/lib/libnvidia-ml.so.1; do
  [ -e "$library" ] && break; library=
done
[ -n "$library" ] && file=$(readlink -f "$library") && echo "library ${file##*/}"
{ [ -n "$library" ] || [ -r $version ]; } || return 0
if command -v python3 >/dev/null; then
  within @NVML_SECONDS@ python3 -IS - <<'RIGUP_NVML' && return
@NVML@
RIGUP_NVML
  why='Python failed'
else
  why='there is no python3'
fi
echo "nvml {\"error\": \"NVML could not be asked: $why\"}"
}
"""

# On a host that rigup manages, root keeps a compiled copy, because compiling takes longer than querying NVML.
_NVML = """
import marshal, os, sys
SOURCES = {
@SOURCES@
}
def compiled(name):
    kept, made_of = "@CACHE@/.%s" % name, "@DIGEST@ %s" % sys.version
    try:
        with open(kept, "rb") as file:
            if os.geteuid() == 0 and os.fstat(file.fileno()).st_uid == 0 and marshal.load(file) == made_of:
                return marshal.load(file)
    except (OSError, ValueError, EOFError, TypeError):
        pass
    code = compile(SOURCES[name], name, "exec")
    try:
        if os.geteuid() == 0:
            new = "%s.%s" % (kept, os.getpid())
            with open(new, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                marshal.dump(made_of, file)
                marshal.dump(code, file)
            os.replace(new, kept)
    except OSError:
        pass
    return code
def load(name):
    module = sys.modules[name] = type(sys)(name)
    exec(compiled(name), module.__dict__)
    return module
load("pynvml")
load("probe_gpus").main()
"""

# longer than the program's own limit, at which it prints what it knows by then
_NVML_SECONDS = 55


AWAITING_NVML = "##rigup-nvml##"
# The NVML part runs beside the rest. Its lines wait in the pipe, so that they do not mix with other lines.
RUN_PROBE = f"{{ nvidia </dev/null | {{ probe </dev/null; echo '{AWAITING_NVML}'; cat; }}; }}"

# nvml.py is the part of nvidia-ml-py that the program needs, under the library's name
_PROGRAMS = {"pynvml": "nvml", "probe_gpus": "probe_gpus"}


def script() -> str:
    """The whole script, for the standard input of `sh -s`."""
    return f"{definitions()}\n{RUN_PROBE}\n"


@lru_cache(maxsize=1)
def definitions() -> str:
    """The script without its last line."""
    texts = {name: program_file(f"{file}.py").read_text() for name, file in _PROGRAMS.items()}
    sources = "".join(f"{name!r}: r'''{text}''',\n" for name, text in texts.items())
    nvml = (
        _NVML.replace("@CACHE@", layout.CACHE)
        .replace("@DIGEST@", hashlib.sha256(sources.encode()).hexdigest()[:16])
        .replace("@SOURCES@", sources)
    )
    return (
        _SCRIPT.replace("@BUILDS@", layout.BUILDS)
        .replace("@WEIGHTS@", layout.WEIGHTS)
        .replace("@PACKAGES@", layout.PACKAGES)
        .replace("@CONFIGURATION@", layout.CONFIGURATION)
        .replace("@NVML_SECONDS@", str(_NVML_SECONDS))
        .replace("@NVML@", nvml)
    )
