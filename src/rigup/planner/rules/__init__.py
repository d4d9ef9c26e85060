"""All rules, and the functions that apply them to a candidate."""

from __future__ import annotations

from typing import NamedTuple

from rigup.catalogue.option_names import nearest
from rigup.plan import Finding
from rigup.planner.candidate import Candidate
from rigup.planner.rules import (
    abilities,
    across_hosts,
    engine,
    formats,
    host,
    memory_options,
    notes,
    options,
    parallel,
    speculative,
    swap,
)
from rigup.planner.rules.rule import ENGINE_JUDGEMENT, Rule

RULES: tuple[Rule, ...] = (
    formats.weight_format,
    formats.mistral_format,
    formats.quantisation_method,
    abilities.model_support,
    formats.minimum_capability,
    formats.cuda_capability,
    formats.cpu_format,
    engine.known_bad,
    engine.quick_build,
    engine.kv_cache_type,
    engine.sparse_cache_type,
    engine.attention_kernels,
    abilities.parser,
    engine.llama_split_tensor,
    notes.context_limit,
    parallel.llama_sizes,
    parallel.llama_cut_layers,
    parallel.tensor_parallel_heads,
    parallel.fp8_block,
    parallel.int4_group,
    parallel.sglang_unequal_memory,
    across_hosts.joining_option,
    across_hosts.data_parallel_hosts,
    across_hosts.gpu_uuid_hosts,
    across_hosts.image_across_hosts,
    across_hosts.ray_engine,
    across_hosts.ray_cpu,
    across_hosts.cpu_pipeline,
    host.glibc,
    host.python,
    host.image,
    host.quadlet,
    options.unknown_option,
    options.unknown_variable,
    options.unknown_value,
    options.unknown_sampling,
    options.decided_option,
    memory_options.counted_number,
    memory_options.uncounted_option,
    memory_options.expert_offload,
    memory_options.decided_variable,
    speculative.speculative_layers,
    speculative.speculative_model,
    speculative.speculative_vocabulary,
    speculative.speculative_context,
    speculative.speculative_engine,
    speculative.speculative_layout,
    speculative.speculative_tokens,
    speculative.speculative_flags,
    swap.swap_engine,
    swap.swap_build,
    swap.swap_hosts,
    swap.swap_option,
    options.secret_in_command,
    options.key_in_environment,
    engine.known_flaw,
    engine.quick_build_unoptimised,
    engine.append_think,
    formats.checkpoint_version,
    formats.format_fallback,
    parallel.nvfp4_expert_parallel,
    across_hosts.one_host,
    across_hosts.tensor_across_hosts,
    across_hosts.graphs_across_hosts,
    across_hosts.pipeline_across_hosts,
    across_hosts.unified_memory_hosts,
    across_hosts.rdma_twins,
    across_hosts.rpc_no_authentication,
    across_hosts.network_not_counted,
    engine.cpu_routing,
    host.kernel_compiler,
    host.driver_floor,
    host.sglang_host_memory,
    options.unread_version,
    abilities.parser_origin,
    abilities.template_tools,
    abilities.unread_architecture,
    options.sparse_attention,
    options.expandable_segments,
    options.sampling_of_chat,
    notes.licence,
    notes.trust_remote_code,
    notes.pruned_experts,
    notes.memory_margin,
    notes.idle_gpus,
    notes.host_offload,
    notes.offload_experts,
    notes.untuned_kernel,
    notes.unread_config,
    notes.config_beside_an_image,
    notes.config_of_another_triton,
)
RULES_BY_ID = {rule.id: rule for rule in RULES}
REFUSING = tuple(rule for rule in RULES if rule.severity == "refuses")
WARNING = tuple(rule for rule in RULES if rule.severity == "warns")


class Findings(NamedTuple):
    """What the rules find: refusals, warnings, and the ids of rules that apply but that the service silences."""

    refusals: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    silenced: tuple[str, ...]


def is_refused(candidate: Candidate) -> bool:
    """Whether any rule refuses this candidate; quicker than `refusals`, as it stops at the first."""
    allowed = candidate.service.allow
    return any(rule.id not in allowed and any(rule.check(candidate)) for rule in REFUSING)


def refusals(candidate: Candidate) -> tuple[Finding, ...]:
    """Every reason to refuse this candidate, except from rules that the service silences."""
    allowed = candidate.service.allow
    return tuple(finding for rule in REFUSING if rule.id not in allowed for finding in rule(candidate))


def check(candidate: Candidate) -> Findings:
    """All refusals and warnings for a candidate at once."""
    allowed = candidate.service.allow
    warnings = tuple(finding for rule in WARNING if rule.id not in allowed for finding in rule(candidate))
    silenced = tuple(rule_id for rule_id in dict.fromkeys(allowed) if _speaks(rule_id, candidate))
    return Findings(refusals(candidate), (*warnings, *_unknown_rules(allowed)), silenced)


def _speaks(rule_id: str, candidate: Candidate) -> bool:
    rule = RULES_BY_ID.get(rule_id)
    return rule is not None and bool(rule(candidate))


def _unknown_rules(allowed: tuple[str, ...]) -> tuple[Finding, ...]:
    known = (*RULES_BY_ID, ENGINE_JUDGEMENT)
    return tuple(
        Finding(
            rule="unknown-rule",
            message=f'allow: rule "{rule_id}" does not exist',
            hint=f'try "{close}"' if (close := nearest(rule_id, known)) else "choose a rule from docs/rules.md",
        )
        for rule_id in allowed
        if rule_id not in known
    )
