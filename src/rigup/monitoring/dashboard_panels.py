"""The contents of the dashboard as data: every panel with its unit, its description, and its queries.

Names of metrics: vLLM 0.33.0, vllm/v1/metrics/loggers.py; SGLang 0.5.23, sglang/srt/observability/metrics_collector.py;
llama.cpp b11434, tools/server/server-task.cpp; NVIDIA/dcgm-exporter, etc/default-counters.csv; node_exporter 1.5.0;
rigup/programs/release_metrics.py. The Python client appends `_total` to a counter's name in the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rigup.monitoring.scrape_config import SWAP_GROUP

Kind = Literal["timeseries", "stat", "table", "state-timeline"]

HOST = 'group=~"$group", host=~"$host"'
SERVICE = f'{HOST}, service=~"$service"'
# Of a swap group only the model that is loaded answers.
TARGETS_UP = f'up{{{HOST}, {SWAP_GROUP}=""}} or max by (job, host, {SWAP_GROUP}) (up{{{HOST}, {SWAP_GROUP}!=""}})'
# Every stage of SGLang's pipeline counts the same requests; releases without the label have only one series.
FIRST_STAGE = f'{SERVICE}, pp_rank=~"0|"'
RATE = "[$__rate_interval]"
ENGINE = "{{host}} {{service}}"
GPU = "{{host}} GPU {{gpu}}"
QUANTILES = (0.5, 0.95, 0.99)
WIDE, HALF, THIRD = 24, 12, 8


@dataclass(frozen=True)
class Query:
    """One expression; Grafana fills in $group, $host, $service and $__rate_interval. legend: the label of each line."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One panel. unit: Grafana's name. width: in 24ths of the page. most: the upper end of the axis."""

    title: str
    unit: str
    description: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    width: int = HALF
    most: float | None = None


@dataclass(frozen=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, labels: str = SERVICE) -> str:
    return f"sum by (host, service) (rate({metric}{{{labels}}}{RATE}))"


def _quantiles(vllm: str, sglang: str) -> tuple[Query, ...]:
    """Quantiles of a histogram, for the engines that have histograms."""
    return tuple(
        Query(
            f"histogram_quantile({q}, sum by (host, service, le) (rate({name}_bucket{{{SERVICE}}}{RATE})))",
            f"{ENGINE} p{q * 100:g}",
        )
        for name in (f"vllm:{vllm}", f"sglang:{sglang}")
        for q in QUANTILES
    )


def _sums(vllm: str, sglang: str, llama_cpp: str) -> tuple[Query, ...]:
    series = (f"vllm:{vllm}{{{SERVICE}}}", f"sglang:{sglang}{{{FIRST_STAGE}}}", f"llamacpp:{llama_cpp}{{{SERVICE}}}")
    return tuple(Query(f"sum by (host, service) ({each})", ENGINE) for each in series)


def _rates(vllm: str, sglang: str, llama_cpp: str) -> tuple[Query, ...]:
    names = (f"vllm:{vllm}", f"sglang:{sglang}", f"llamacpp:{llama_cpp}")
    return tuple(Query(_rate(name), ENGINE) for name in names)


HEALTH = Row(
    "Health and versions",
    (
        Panel("Targets down", "none", "Number of targets that do not respond to Prometheus; it should be 0.",
              (Query(f"count(({TARGETS_UP}) == 0) or vector(0)", "down"),), "stat", THIRD),
        Panel("Services not active", "none", "rigup units that systemd does not report as active.",
              (Query(f"count(rigup_service_active{{{SERVICE}}} == 0) or vector(0)", "not active"),), "stat", THIRD),
        Panel("Since the last apply", "s", "Time since the last rigup apply on each host.",
              (Query(f"time() - max by (host) (rigup_apply_timestamp_seconds{{{HOST}}})", "{{host}}"),), "stat", THIRD),
        Panel("Targets up", "bool_yes_no", "Whether each engine and exporter responds; of services that take turns, "
              "which is loaded.",
              (Query(f"max by (job, host, service) (up{{{HOST}}})", "{{host}} {{job}} {{service}}"),),
              "state-timeline", HALF),
        Panel("Services active", "bool_yes_no", "Whether systemd reports the unit of each service as active.",
              (Query(f"rigup_service_active{{{SERVICE}}}", ENGINE),), "state-timeline", HALF),
        Panel("Releases", "none", "Build, checkpoint and release number of each service.",
              (Query(f"rigup_release_info{{{SERVICE}}}", ENGINE),), "table", HALF),
        Panel("Last applies", "none", "rigup version, lock, commit and result of the last apply on each host.",
              (Query(f"rigup_apply_info{{{HOST}}}", "{{host}}"),), "table", HALF),
        Panel("Restarts", "none", "How often systemd has restarted each service. Every step is a crash.",
              (Query(f"rigup_service_restarts{{{SERVICE}}}", ENGINE),)),
        Panel("Age of the release", "s", "Time since the release of each service was created.",
              (Query(f"time() - rigup_release_timestamp_seconds{{{SERVICE}}}", ENGINE),)),
    ),
)  # fmt: skip

REQUESTS = Row(
    "Requests",
    (
        Panel("Running", "none", "Requests that each engine is processing.",
              _sums("num_requests_running", "num_running_reqs", "requests_processing")),
        Panel("Queued", "none", "Waiting requests. If this stays above 0, the engine is at its limit.",
              _sums("num_requests_waiting", "num_queue_reqs", "requests_deferred")),
        Panel("Generated tokens", "suffix: tok/s", "Output tokens per second, over all requests.",
              _rates("generation_tokens_total", "generation_tokens_total", "tokens_predicted_total")),
        Panel("Prompt tokens", "suffix: tok/s", "Prompt tokens per second; llama.cpp: without those from its cache.",
              _rates("prompt_tokens_total", "prompt_tokens_total", "prompt_tokens_total")),
        Panel("Time to first token", "s", "From a request's arrival to its first token. llama.cpp does not report it.",
              _quantiles("time_to_first_token_seconds", "time_to_first_token_seconds")),
        Panel("Time per output token", "s", "Mean per request, without the first token; llama.cpp: of all tokens.",
              (*_quantiles("request_time_per_output_token_seconds", "request_time_per_output_token_seconds"),
               Query(f"{_rate('llamacpp:tokens_predicted_seconds_total')} / {_rate('llamacpp:tokens_predicted_total')}",
                     f"{ENGINE} mean"))),
        Panel("Inter-token latency", "s", "From one token to the next, as sent. llama.cpp does not report it.",
              _quantiles("inter_token_latency_seconds", "inter_token_latency_seconds")),
        Panel("Whole requests", "s", "From a request's arrival to its last token. llama.cpp does not report it.",
              _quantiles("e2e_request_latency_seconds", "e2e_request_latency_seconds")),
        Panel("KV cache in use", "percentunit", "At 100 %, requests are preempted. llama.cpp does not report it.",
              (Query(f"max by (host, service) (vllm:kv_cache_usage_perc{{{SERVICE}}})", ENGINE),
               Query(f"max by (host, service) (sglang:token_usage{{{SERVICE}}})", ENGINE)), most=1),
        Panel("Prompt tokens from cache", "percentunit", "Share of prompt tokens taken from the cache.",
              (Query(f"{_rate('vllm:prefix_cache_hits_total')} / {_rate('vllm:prefix_cache_queries_total')}", ENGINE),
               Query(f"avg by (host, service) (sglang:cache_hit_rate{{{FIRST_STAGE}}})", ENGINE),
               Query(f"{_rate('llamacpp:prompt_tokens_cached_total')} / "
                     f"({_rate('llamacpp:prompt_tokens_cached_total')} + {_rate('llamacpp:prompt_tokens_total')})",
                     ENGINE)),
              most=1),
        Panel("Requests ended", "reqps", "By reason, if the engine reports one. llama.cpp does not count them.",
              (Query(f"sum by (host, service, finished_reason) (rate(vllm:request_success_total{{{SERVICE}}}{RATE}))",
                     f"{ENGINE} {{{{finished_reason}}}}"),
               Query(_rate("sglang:num_requests_total"), ENGINE),
               Query(_rate("sglang:num_aborted_requests_total"), f"{ENGINE} aborted"))),
        Panel("Preempted for lack of cache", "reqps", "Requests that vLLM preempted or SGLang retracted.",
              (Query(_rate("vllm:num_preemptions_total"), ENGINE),
               Query(_rate("sglang:num_retracted_requests_total", FIRST_STAGE), ENGINE))),
    ),
)  # fmt: skip

SERVER = "{{host}} {{proxy}} {{server}}"
# Other sections are those in which smg chooses, and of challenges.
MODELS = 'proxy=~"model-.*"'
CLIENT = "{{client}} {{model}}"
GATEWAY = Row(
    "Gateway",
    (
        Panel("Backends up", "none", "By model. 0 means that no backend serves it.",
              (Query(f'sum by (host, proxy) (haproxy_server_status{{{HOST}, {MODELS}, state="UP", server!="held"}})',
                     "{{host}} {{proxy}}"),)),
        Panel("In flight", "none", "Requests that each backend has not answered yet.",
              (Query(f'haproxy_server_current_sessions{{{HOST}, {MODELS}, server!="held"}}', SERVER),)),
        Panel("Queued at the gateway", "none", "Requests without a backend so far.",
              (Query(f"haproxy_backend_current_queue{{{HOST}, {MODELS}}}", "{{host}} {{proxy}}"),)),
        Panel("Answers", "reqps", "By model and class of status.",
              (Query("sum by (host, proxy, code) "
                     f"(rate(haproxy_backend_http_responses_total{{{HOST}, {MODELS}}}{RATE}))",
                     "{{host}} {{proxy}} {{code}}"),)),
        Panel("Broken answers", "reqps", "Answers of each backend that were not HTTP or broke off.",
              (Query(f"rate(haproxy_server_response_errors_total{{{HOST}, {MODELS}}}{RATE})", SERVER),)),
        Panel("Weight", "none", "Weight of each backend; 0 while it gets no requests.",
              (Query(f'haproxy_server_weight{{{HOST}, {MODELS}, server!="held"}}', SERVER),)),
        Panel("Requests by client", "reqps", "By client and model. Needs monitoring on the gateway; the next two, too.",
              (Query(f"sum by (client, model) (rate(rigup_gateway_requests_total{{{HOST}}}{RATE}))", CLIENT),)),
        Panel("Failed requests by client", "reqps", "Answered with a status of 500 or more.",
              (Query(f"sum by (client, model) (rate(rigup_gateway_failed_requests_total{{{HOST}}}{RATE}))", CLIENT),)),
        Panel("Bytes by client", "Bps", "Requests and answers together.",
              (Query(f"sum by (client, model) (rate(rigup_gateway_received_bytes_total{{{HOST}}}{RATE}) + "
                     f"rate(rigup_gateway_sent_bytes_total{{{HOST}}}{RATE}))", CLIENT),)),
        Panel("Certificate expires in", "s", "Of each gateway with tls.",
              (Query(f"rigup_gateway_certificate_end_timestamp_seconds{{{HOST}}} - time()", "{{host}}"),)),
    ),
)  # fmt: skip

GPUS = Row(
    "GPUs",
    (
        Panel("Busy", "percent", "Share of time in which a kernel ran, even if it used only part of the GPU.",
              (Query(f"DCGM_FI_DEV_GPU_UTIL{{{HOST}}}", GPU),), most=100),
        Panel("GPU memory in use", "percentunit", "Engines allocate all memory at the start: a flat line is normal.",
              (Query(f"DCGM_FI_DEV_FB_USED{{{HOST}}} / "
                     f"(DCGM_FI_DEV_FB_USED{{{HOST}}} + DCGM_FI_DEV_FB_FREE{{{HOST}}})", GPU),), most=1),
        Panel("GPU memory left", "mbytes", "Memory still free on each GPU.",
              (Query(f"DCGM_FI_DEV_FB_FREE{{{HOST}}}", GPU),)),
        Panel("Temperature", "celsius", "Chip temperature. A GPU that gets too hot lowers its clock.",
              (Query(f"DCGM_FI_DEV_GPU_TEMP{{{HOST}}}", GPU),)),
        Panel("Power", "watt", "Power draw of each GPU; rig.power_limit_w limits it.",
              (Query(f"DCGM_FI_DEV_POWER_USAGE{{{HOST}}}", GPU),)),
        Panel("Clock", "hertz", "SM clock. If it drops under load, the GPU is hot or at its power limit.",
              (Query(f"DCGM_FI_DEV_SM_CLOCK{{{HOST}}} * 1e6", GPU),)),
        Panel("Last Xid", "none", "The last error that the driver reported, 0 for none; NVIDIA documents the numbers.",
              (Query(f"DCGM_FI_DEV_XID_ERRORS{{{HOST}}}", GPU),)),
        Panel("Memory copies", "percent", "Share of time in which GPU memory was read or written; it limits decoding.",
              (Query(f"DCGM_FI_DEV_MEM_COPY_UTIL{{{HOST}}}", GPU),), most=100),
    ),
)  # fmt: skip

_REAL_FOLDERS = f'{HOST}, mountpoint!~"/(run|dev|boot)(/.*)?"'
MACHINES = Row(
    "Machines",
    (
        Panel("Processors", "percentunit", "Share of all processors' time that was not idle.",
              (Query(f'1 - avg by (host) (rate(node_cpu_seconds_total{{{HOST}, mode="idle"}}{RATE}))', "{{host}}"),),
              most=1),
        Panel("Host memory in use", "percentunit", "Excluding what the kernel can free at once.",
              (Query(f"1 - node_memory_MemAvailable_bytes{{{HOST}}} / node_memory_MemTotal_bytes{{{HOST}}}",
                     "{{host}}"),), most=1),
        Panel("Disks in use", "percentunit", "Weights, builds and logs fill them; rigup prune frees space.",
              (Query(f"1 - max by (host, mountpoint) (node_filesystem_avail_bytes{{{_REAL_FOLDERS}}}) / "
                     f"max by (host, mountpoint) (node_filesystem_size_bytes{{{_REAL_FOLDERS}}})",
                     "{{host}} {{mountpoint}}"),), most=1),
        Panel("Disks read", "Bps", "Bytes read from all disks, mostly while an engine loads weights.",
              (Query(f"sum by (host) (rate(node_disk_read_bytes_total{{{HOST}}}{RATE}))", "{{host}}"),)),
        Panel("Network received", "Bps", "All devices except loopback.",
              (Query(f'sum by (host) (rate(node_network_receive_bytes_total{{{HOST}, device!="lo"}}{RATE}))',
                     "{{host}}"),)),
        Panel("Network sent", "Bps", "All devices except loopback.",
              (Query(f'sum by (host) (rate(node_network_transmit_bytes_total{{{HOST}, device!="lo"}}{RATE}))',
                     "{{host}}"),)),
        Panel("Load", "none", "Processes that run or wait, five-minute mean.",
              (Query(f"node_load5{{{HOST}}}", "{{host}}"),)),
        Panel("Up for", "s", "Since the last boot.",
              (Query(f"time() - node_boot_time_seconds{{{HOST}}}", "{{host}}"),)),
    ),
)  # fmt: skip

ROWS = (HEALTH, REQUESTS, GATEWAY, GPUS, MACHINES)
