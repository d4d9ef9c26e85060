"""Everything that can break an apply halfway. After each of them a plain apply puts everything right."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.lab.fleet import FILE_BYTES, FILES, MODEL_FILE, WEIGHTS, Fleet, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "weights", "builds from source")]

# bytes a second of each transfer: on a busy machine, too, a second apply meets the download of the first
SLOW = 100_000
ALL_BYTES = FILE_BYTES * len(FILES)
BUILD = "rigup-build-*"
LEASE = "/run/rigup/lease/lease.json"


@pytest.fixture
def built(fleet: Fleet) -> Fleet:
    """A fleet whose build is in the cache, and a machine with nothing of rigup's: it begins to download soon."""
    if not fleet.recorded_builds():
        fleet.host.wipe()
        fleet.apply()
    fleet.host.wipe()
    return fleet


@pytest.fixture
def unbuilt(built: Fleet) -> Fleet:
    """A fleet whose build is nowhere, and a machine where it will wait in its middle."""
    built.forget_builds()
    built.host.hold_build()
    return built


def build_runs(fleet: Fleet) -> set[str]:
    """Which runs of a build job the journal of this boot knows, since the machine was wiped last."""
    lines = fleet.host.tell(f"journalctl -o json -u '{BUILD}' --since=@$(stat -c %Y /opt/rigup)").splitlines()
    return {found for line in lines if (found := json.loads(line).get("_SYSTEMD_INVOCATION_ID"))}


def downloading(fleet: Fleet) -> bool:
    """Whether the weights are on their way, and have a way to go."""
    return 0 < fleet.host.part_bytes() < ALL_BYTES


def test_kill_9_while_compiling(unbuilt: Fleet) -> None:
    first = unbuilt.start("apply", "--yes")
    first.wait_to_say("compiling")
    (refused,) = unbuilt.apply(expect=1).json["hosts"][0]["errors"]
    assert f"(process {first.process.pid}) since 20" in refused["message"]
    first.kill()
    (job,) = unbuilt.host.jobs("build")

    second = unbuilt.start("apply", "--yes", "--json")
    second.wait_to_say("compiling")
    assert unbuilt.host.jobs("build") == [job]
    unbuilt.host.release_build()
    assert second.wait() == 0, second.text

    assert len(build_runs(unbuilt)) == 1
    assert unbuilt.host.answers()
    assert unbuilt.apply().json["hosts"][0]["state"] == "unchanged"


def test_kill_9_while_compiling_and_the_build_ends_alone(unbuilt: Fleet) -> None:
    first = unbuilt.start("apply", "--yes")
    first.wait_to_say("compiling")
    first.kill()
    unbuilt.host.release_build()
    wait_for(lambda: unbuilt.host.jobs("build") == [], "the end of the build")

    unbuilt.converges()
    assert len(build_runs(unbuilt)) == 1


def test_ctrl_c_while_compiling(unbuilt: Fleet) -> None:
    run = unbuilt.start("apply", "--yes")
    run.wait_to_say("compiling")
    run.interrupt()
    assert run.wait(60) == 130, run.text

    assert unbuilt.host.jobs() == []
    assert not unbuilt.host.says(f"test -e {LEASE}")
    assert "Traceback" not in run.text
    unbuilt.host.release_build()
    unbuilt.converges()


def test_somebody_who_watched_leaves_in_the_middle(unbuilt: Fleet) -> None:
    """As `rigup apply --yes 2>&1 | head`: the first line is read, then nobody reads any more."""
    words = (sys.executable, "-m", "rigup", "apply", "--yes")
    environment = {**os.environ, "XDG_CACHE_HOME": str(unbuilt.cache)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(words, cwd=unbuilt.root, env=environment, stdin=subprocess.DEVNULL, **pipes) as process:
        assert process.stdout is not None
        while b"compiling" not in process.stdout.readline():
            assert process.poll() is None
        process.stdout.close()
        unbuilt.host.release_build()
        assert process.wait(180) == 0
    assert unbuilt.host.answers()
    assert unbuilt.apply().json["hosts"][0]["state"] == "unchanged"


def test_no_other_user_of_a_host_can_keep_its_lease(built: Fleet) -> None:
    """Somebody holds the lock where it lay before, and tries to where it lies now."""
    built.host.tell("mkdir -p /run/rigup; touch /run/rigup/lease.lock; chmod 644 /run/rigup/lease.lock")
    built.host.tell("systemd-run --quiet --uid=nobody --unit=holds-old flock /run/rigup/lease.lock sleep 300")
    try:
        wait_for(lambda: not built.host.says("flock -n /run/rigup/lease.lock true"), "somebody to hold the lock")
        built.converges()
        assert not built.host.says("runuser -u nobody -- flock -n /run/rigup/lease/lease.lock true")
    finally:
        built.host.tell("systemctl stop holds-old")


def test_an_empty_lease_is_none(built: Fleet) -> None:
    folder = LEASE.rpartition("/")[0]
    built.host.tell(f"mkdir -p {folder}; : > {LEASE}; : > {folder}/lease.seen")
    built.converges()
    built.host.tell(f"echo 99999999 > {folder}/lease.seen; echo '{{' > {LEASE}")
    built.apply("--break-lease")


def test_ctrl_c_at_the_question_changes_nothing(built: Fleet) -> None:
    controller, terminal = os.openpty()
    run = built.start("apply", terminal=terminal)
    run.wait_to_say("[y/N]")
    run.interrupt()
    assert run.wait(30) == 130, run.text
    os.close(controller)
    os.close(terminal)

    assert "cancelled" in run.text
    assert not built.host.says(f"test -e {LEASE} || test -e /opt/rigup")


def test_kill_9_while_downloading(built: Fleet) -> None:
    built.hub.faults(bytes_per_second=SLOW)
    run = built.start("apply", "--yes")
    wait_for(lambda: downloading(built), "a download")
    run.kill()
    (job,) = built.host.jobs()
    other = f"{job.rpartition('-')[0]}-other"  # as for other files of the revision, which would hold the folder
    built.host.tell(f"systemd-run --quiet --unit={other} sleep infinity")
    before = len(built.hub.log())

    again = built.start("apply", "--yes")
    again.wait_to_say("stopping a download")
    built.hub.faults()
    assert again.wait() == 0, again.text
    built.converges()
    assert not built.host.says(f"systemctl is-active {other}")
    whole = [entry for entry in built.hub.log()[before:] if entry["status"] == 200 and entry["bytes"] == FILE_BYTES]
    assert len(whole) <= len(FILES), "files came more than once"


def test_ctrl_c_while_downloading(built: Fleet) -> None:
    built.hub.faults(bytes_per_second=SLOW)
    run = built.start("apply", "--yes")
    wait_for(lambda: downloading(built), "a download")
    run.interrupt()
    assert run.wait(60) == 130, run.text

    assert built.host.jobs() == []
    assert not built.host.says(f"test -e {LEASE}")
    assert built.host.part_bytes() > 0
    before = len(built.hub.log())
    built.hub.faults()
    built.converges()
    assert [entry for entry in built.hub.log()[before:] if entry["status"] == 206], "nothing was continued"


def test_the_host_reboots_while_downloading(built: Fleet) -> None:
    built.hub.faults(bytes_per_second=SLOW)
    run = built.start("apply", "--yes")
    wait_for(lambda: downloading(built), "a download")
    built.host.machine.reboot()
    built.hub.faults()
    assert run.wait() in (0, 1), run.text
    assert "Traceback" not in run.text
    built.converges()


@pytest.mark.slow
def test_the_network_is_cut_while_downloading_and_comes_back(built: Fleet) -> None:
    built.hub.faults(bytes_per_second=SLOW)
    run = built.start("apply", "--yes")
    wait_for(lambda: downloading(built), "a download")
    built.host.machine.cut()
    run.wait_to_say("connection lost")
    built.host.machine.heal()
    built.hub.faults()
    assert run.wait() == 0, run.text
    built.converges()


def test_the_disk_fills_while_downloading(built: Fleet) -> None:
    built.hub.faults(bytes_per_second=SLOW)
    run = built.start("apply", "--yes")
    wait_for(lambda: downloading(built), "a download")
    # Filling takes a moment, and the download goes on meanwhile: it needs a little room until that is done.
    built.host.machine.fill_disk(leave_mib=5)
    assert run.wait() == 1, run.text
    assert "disk full" in run.text
    assert " more" in run.text and " free" in run.text

    built.host.tell("rm /var/filler")
    built.hub.faults()
    built.converges()


def test_a_disk_that_is_too_small_is_refused_with_both_numbers_before_the_first_byte(built: Fleet) -> None:
    before = len(built.hub.log())
    built.host.machine.fill_disk(leave_mib=10)
    errors = built.apply(expect=2).json["hosts"][0]["errors"]
    assert any(re.search(r" weights .* 24\.5 MB .* [0-9.]+ [kM]?B ", e["message"]) for e in errors)
    assert len(built.hub.log()) == before

    built.host.tell("rm /var/filler")
    built.converges()


def test_a_byte_that_comes_wrong_is_mended(built: Fleet) -> None:
    before = len(built.hub.log())
    built.hub.faults(corrupt_times=1)
    built.converges()
    bodies = [entry for entry in built.hub.log()[before:] if entry["bytes"] == FILE_BYTES]
    assert len(bodies) == 2 * len(FILES)


def test_bytes_that_always_come_wrong_stop_the_apply_with_both_hashes(built: Fleet) -> None:
    built.hub.faults(corrupt_times=1000)
    run = built.apply(expect=1)
    (error,) = run.json["hosts"][0]["errors"]
    assert len(re.findall(r"\b[0-9a-f]{16,}", error["message"])) >= 2
    assert built.host.tell(f"find {WEIGHTS} -name '*.gguf'") == ""

    built.hub.faults()
    built.converges()


def test_a_connection_that_drops_is_taken_up_again(built: Fleet) -> None:
    before = len(built.hub.log())
    built.hub.faults(drop_after_bytes=FILE_BYTES // 2, drop_times=1)
    built.converges()
    assert len([entry for entry in built.hub.log()[before:] if entry["status"] == 206]) == len(FILES)


def test_a_byte_that_rots_later_is_found_and_mended(built: Fleet) -> None:
    built.apply()
    model = built.host.tell(f"find {WEIGHTS} -name {MODEL_FILE}")
    before = built.host.tell(f"sha256sum {model}")
    built.host.tell(f"printf rotten | dd of={model} bs=1 seek=1000 conv=notrunc status=none")
    assert built.host.tell(f"sha256sum {model}") != before

    assert [change["role"] for change in built.apply().json["hosts"][0]["changes"]] == ["weights"]
    assert built.host.tell(f"sha256sum {model}") == before
