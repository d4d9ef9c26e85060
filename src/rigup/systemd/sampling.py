"""SGLang's sampling defaults: chat requests take them from the checkpoint's generation_config.json and nowhere else.

--preferred-sampling-params only reaches requests of SGLang's own API: the OpenAI layer sets every parameter of a chat
request, from that file or to OpenAI's defaults (0.5.23 entrypoints/openai/protocol.py, to_sampling_params). So the
service sees a file of its own in that place, made at each start from the checkpoint's and the plan's.
"""

from __future__ import annotations

from rigup.layout import weights_folder
from rigup.plan import BoundPlan
from rigup.systemd.quoting import command_line

FILE = "generation_config.json"
OPTION = "--preferred-sampling-params"
MERGE = (
    "import json, sys; own, made, chosen = sys.argv[1:]; "
    "merged = {**json.load(open(own)), **json.loads(chosen)}; json.dump(merged, open(made, 'w'))"
)


def sampling_lines(plan: BoundPlan, build_folder: str) -> tuple[str, ...]:
    """The unit's lines; () without the option, which no other engine has, or without a file of the checkpoint's.

    The file is not there yet when its maker starts, which therefore reads the checkpoint's own.
    """
    checkpoint, words = plan.checkpoint, plan.command
    if OPTION not in words or checkpoint is None or checkpoint.revision is None:
        return ()
    if FILE not in (file.path for file in checkpoint.files):
        return ()
    own = f"{weights_folder(checkpoint.repo, checkpoint.revision)}/{FILE}"
    chosen = words[words.index(OPTION) + 1]
    maker = (f"{build_folder}/bin/python", "-I", "-c", MERGE, own, f"${{RUNTIME_DIRECTORY}}/{FILE}", chosen)
    return (
        f"ExecStartPre={command_line(maker)}",
        f"BindReadOnlyPaths=-/run/rigup-{plan.service.name}/{FILE}:{own}",
    )
