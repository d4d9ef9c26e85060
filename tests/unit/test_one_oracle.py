"""Memory is counted in one place: rigup.planner.memory, from what rigup.attention says of layers."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "rigup"
COUNTING = ("planner/memory/", "attention/", "tensor_bytes.py", "catalogue/model.py", "catalogue/checkpoint.py")
"""Where bytes are counted, and the nouns that they are counted from."""
SHAPES = {"vocab", "hidden", "kv_heads", "head_dim", "kv_rank", "token_bytes", "state_bytes", "caches", "tensors"}
"""What only arithmetic about memory needs to know of a model or a checkpoint."""
RESULTS = {"GpuUsage", "Placement", "LayerWeights", "LayerCache"}
"""What such arithmetic makes."""
READING = ("checkpoints/", "quantisation/", "lab/", "programs/", "planner/speed.py")
"""Where shapes are read out of files, made up for a rehearsal, or sent between GPUs, and no GPU's memory is counted."""


def second_oracles(source: Path) -> list[str]:
    """A sentence for each module that counts memory by itself."""
    found = []
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        if name.startswith((*COUNTING, *READING)):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            said = ""
            if isinstance(node, ast.Attribute) and node.attr in SHAPES:
                said = f"reads .{node.attr}"
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RESULTS:
                said = f"makes a {node.func.id}"
            if said:
                found.append(
                    f"rigup/{name}:{node.lineno} {said}: this looks like a second oracle for memory; ask "
                    "rigup.planner.memory.fit.place_in_memory, or count it in rigup.planner.memory"
                )
    return found


def test_memory_is_counted_in_one_place() -> None:
    assert "\n".join(second_oracles(SOURCE)) == ""


def test_a_second_oracle_is_found_and_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "guess.py").write_text("def guess(model):\n    return 2 * model.vocab * model.hidden\n")
    said = second_oracles(tmp_path)
    assert said[0] == (
        "rigup/cli/guess.py:2 reads .hidden: this looks like a second oracle for memory; ask "
        "rigup.planner.memory.fit.place_in_memory, or count it in rigup.planner.memory"
    )
    assert len(said) == 2
