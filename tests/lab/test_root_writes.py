"""What root writes on a host when somebody else has prepared for it: links, folders, a login shell's umask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rigup import layout
from tests.lab.fleet import REPO, UNIT_FILE, WEIGHTS, Fleet, Host

pytestmark = pytest.mark.lab

VICTIM = "/root/victim"
PLANTED = 'for name in $names; do ln -sfn "$victim" "$folder/$name"; done'


@pytest.fixture
def applied(fleet: Fleet) -> Iterator[Fleet]:
    """The fleet after an apply, with a file of root's that nobody is to change. Afterwards a plain apply converges."""
    fleet.apply()
    fleet.host.tell(
        f"echo precious > {VICTIM}; chmod 600 {VICTIM}; ls -l --time-style=full-iso {VICTIM} > {VICTIM}.was"
    )
    yield fleet
    fleet.host.tell(f"rm -f {VICTIM}*")
    fleet.describe()
    fleet.converges()


def is_untouched(host: Host) -> bool:
    """Whether the victim is as it was: content, owner, mode and time."""
    return host.says(f"ls -l --time-style=full-iso {VICTIM} | cmp - {VICTIM}.was && grep -qx precious {VICTIM}")


def plant(host: Host, folder: str, names: str) -> None:
    """Has the worker put links to the victim there, under these names, in a folder that is the worker's then."""
    host.tell(f"mkdir -p {folder}; chown {layout.WORKER_USER} {folder}; chmod 755 {folder}")
    words = f'folder={folder}; victim={VICTIM}; names="{names}"; {PLANTED}'
    host.tell(f"setpriv --reuid={layout.WORKER_USER} --clear-groups sh -c '{words}'")


def roots_below_others(host: Host) -> str:
    """What root has put below a folder that is somebody else's."""
    roots = " ".join(("/opt/rigup", "/var/lib/rigup", layout.CONFIGURATION, layout.RUNTIME, layout.CACHE, layout.LOG))
    return host.tell(f"find {roots} -type d ! -user root -exec find {{}} -mindepth 1 -user root ';' 2>/dev/null; true")


def changeable(host: Host) -> str:
    """What of root's own others can change."""
    roots = " ".join((*layout.ROOTS, layout.RUNTIME, layout.CACHE, layout.LOG))
    own = f"find {roots} -maxdepth 0 '(' ! -user root -o ! -group root -o ! -perm 755 ')'"
    deep = f"find /opt/rigup {layout.CONFIGURATION} {layout.JOBS} {layout.LOG} {UNIT_FILE}"
    return host.tell(f"{own}; {deep} '(' ! -user root -o ! -type l -perm /022 ')'")


def test_every_folder_has_the_owner_and_the_mode_that_the_layout_says(applied: Fleet) -> None:
    assert changeable(applied.host) == ""
    assert roots_below_others(applied.host) == ""
    assert applied.host.tell(f"stat -c %U:%a {WEIGHTS}/{REPO.partition('/')[0]} {WEIGHTS}/{REPO}").split() == [
        "root:755",
        f"{layout.WORKER_USER}:755",
    ]


def test_links_in_the_workers_folders_are_not_followed(applied: Fleet) -> None:
    host = applied.host
    told = host.tell(f"ls {layout.JOBS} {WEIGHTS}/.jobs 2>/dev/null | grep json; true").split()
    assert told
    names = " ".join(f"{name} {name}.new" for job in told for name in (job, job.removeprefix("rigup-weights-")))
    host.tell(f"rm -rf {WEIGHTS}/{REPO}")
    plant(host, f"{WEIGHTS}/.jobs", names)
    plant(host, f"{WEIGHTS}/{REPO}", f"{names} job.json job.json.new")
    applied.apply()
    assert is_untouched(host)
    assert not host.says(f"test -e {WEIGHTS}/.jobs")
    assert roots_below_others(host) == ""


@pytest.mark.parametrize("folder", [layout.PROGRAMS, layout.JOBS, layout.BUILDS, layout.SERVICES, layout.WEIGHTS])
def test_a_folder_of_roots_that_became_the_workers_is_roots_again(applied: Fleet, folder: str) -> None:
    host = applied.host
    host.tell(f"echo '# changed' >> {layout.PROGRAMS}/ask.py")
    plant(host, folder, "ask.py.new chat.new")
    applied.apply()
    assert is_untouched(host)
    assert host.tell(f"stat -c %U:%G:%a {folder}") == "root:root:755"
    assert not host.says(f"grep -q changed {layout.PROGRAMS}/ask.py")
    host.tell(f"rm -f {folder}/ask.py.new {folder}/chat.new")


def test_what_lies_above_and_is_somebody_elses_stops_the_apply_with_one_message(applied: Fleet) -> None:
    host = applied.host
    host.tell(f"chown {layout.WORKER_USER} /opt; rm {layout.PROGRAMS}/ask.py")
    try:
        (error,) = applied.apply(expect=1).json["hosts"][0]["errors"]
    finally:
        host.tell("chown root:root /opt")
    assert f"opt (drwxr-xr-x {layout.WORKER_USER} root) " in error["message"]
    assert error["hint"].startswith(f"on the host: namei -l {layout.PROGRAMS};")
    assert is_untouched(host)


def test_the_umask_of_roots_login_shell_is_of_no_matter(applied: Fleet) -> None:
    host = applied.host
    host.tell("cp /root/.bashrc /root/.bashrc.was 2>/dev/null; printf 'umask 000\\n' > /root/.bashrc")
    try:
        assert host.tell("umask") == "0000"
        host.wipe()
        applied.apply()
        assert changeable(host) == ""
        assert roots_below_others(host) == ""
    finally:
        host.tell("rm -f /root/.bashrc; mv /root/.bashrc.was /root/.bashrc 2>/dev/null; true")


def test_releases_that_others_could_change_are_closed(applied: Fleet) -> None:
    host, folder = applied.host, layout.service_folder("chat")
    host.tell(f"chmod -R a+w {folder}")
    applied.apply()
    assert changeable(host) == ""
    assert host.tell(f"find {folder} -name api-key -perm /077") == ""


def test_a_stray_copy_of_a_release_is_left_alone(applied: Fleet) -> None:
    host, releases = applied.host, f"{layout.service_folder('chat')}/releases"
    host.tell(f"cp -r {releases}/$(basename $(readlink {releases}/../current)) {releases}/2.bak")
    applied.describe(context=4096)
    applied.apply()
    assert host.answers()
    assert host.says(f"test -e {releases}/2.bak/release.json")
    assert "2.bak" not in applied.rigup("releases").text
    host.tell(f"rm -r {releases}/2.bak")


def test_the_hubs_token_leaves_with_the_inventory(applied: Fleet) -> None:
    host, token = applied.host, f"{layout.CONFIGURATION}/hub-token"
    secret = applied.root / "hub.token"
    secret.write_text("hf_abcdefghijklmnop\n")
    secret.chmod(0o600)
    settings = applied.root / "group_data/boxes.py"
    settings.write_text(f'{settings.read_text()}hub_token_file = "hub.token"\n')
    applied.apply()
    assert host.tell(f"stat -c %U:%G:%a {token}") == f"root:{layout.WORKER_USER}:640"
    applied.describe()
    assert applied.apply().json["hosts"][0]["state"] == "changed"
    assert not host.says(f"test -e {token}")
    assert applied.apply().json["hosts"][0]["state"] == "unchanged"
