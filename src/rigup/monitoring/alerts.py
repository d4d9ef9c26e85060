"""Prometheus alert rules: some worth waking up for ("page"), others worth a look in the morning ("look"). Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rigup.monitoring.exporters import TEXT_FILE
from rigup.monitoring.scrape_config import SWAP_GROUP

_UNLESS_STOPPED = "unless on (host, service) rigup_service_stopped == 1"
# Of a swap group only the model that is loaded answers. rigup_service_stopped has the name of its first service.
_GROUP_UP = f'max by (job, host, {SWAP_GROUP}) (up{{{SWAP_GROUP}!=""}})'
_UP = f'up{{{SWAP_GROUP}=""}} or label_replace({_GROUP_UP}, "service", "$1", "{SWAP_GROUP}", "(.+)")'
_FOLDERS = 'mountpoint!~"/(run|dev|boot)(/.*)?"'


@dataclass(frozen=True)
class Alert:
    """One alert. lasting: how long the expression must hold before it fires. severity: "page" or "look"."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str


ALERTS = (
    Alert("RigupTargetDown", f"({_UP}) == 0 {_UNLESS_STOPPED}", "5m", "page",
          "{{ $labels.job }} of {{ $labels.host }} does not respond"),
    Alert("RigupServiceNotActive", f"rigup_service_active == 0 {_UNLESS_STOPPED}", "5m", "page",
          "{{ $labels.service }} on {{ $labels.host }} is not active"),
    Alert("RigupServiceRestarts", "max_over_time(rigup_service_restarts[15m]) - "
          "min_over_time(rigup_service_restarts[15m]) > 2", "0m", "page",
          "{{ $labels.service }} on {{ $labels.host }} keeps exiting and being restarted"),
    Alert("RigupReleaseNeverAnswered", "rigup_release_answered == 0", "1h", "look",
          "the release of {{ $labels.service }} on {{ $labels.host }} has never responded"),
    Alert("RigupApplyFailed", 'rigup_apply_info{result="failed"}', "0m", "look",
          "the last apply of {{ $labels.host }} failed"),
    Alert("RigupFactsOld", f'time() - node_textfile_mtime_seconds{{file="{TEXT_FILE}"}} > 300', "5m", "look",
          "the release metrics of {{ $labels.host }} are older than five minutes"),
    Alert("RigupRequestsQueue", "vllm:num_requests_waiting > 0 or sglang:num_queue_reqs > 0 "
          "or llamacpp:requests_deferred > 0", "15m", "look",
          "requests have been queued for {{ $labels.service }} on {{ $labels.host }} for 15 minutes"),
    Alert("RigupGatewayWithoutBackend",
          'sum by (host, proxy) (haproxy_server_status{state="UP", server!="held", proxy=~"model-.*"}) == 0',
          "1m", "page",
          "the gateway {{ $labels.host }} has no backend up for {{ $labels.proxy }}"),
    Alert("RigupGatewayErrors",
          'sum by (host, proxy) (rate(haproxy_backend_http_responses_total{code="5xx", proxy=~"model-.*"}[5m])) / '
          'sum by (host, proxy) (rate(haproxy_backend_http_responses_total{proxy=~"model-.*"}[5m])) > 0.05',
          "5m", "page",
          "more than 5 % of the answers of {{ $labels.proxy }} through {{ $labels.host }} are errors"),
    Alert("RigupGatewayCertificateEnds", "rigup_gateway_certificate_end_timestamp_seconds - time() < 14 * 86400", "0m",
          "look", "the certificate of the gateway {{ $labels.host }} expires in {{ humanizeDuration $value }}"),
    Alert("RigupGpuGone", "count by (host) (DCGM_FI_DEV_GPU_TEMP) < count by (host) (DCGM_FI_DEV_GPU_TEMP offset 1h)",
          "5m", "page", "{{ $labels.host }} shows fewer GPUs than an hour ago"),
    Alert("RigupGpuXid", "DCGM_FI_DEV_XID_ERRORS != 0", "0m", "look",
          "GPU {{ $labels.gpu }} of {{ $labels.host }} has reported Xid {{ $value }}"),
    Alert("RigupDiskFull", f"node_filesystem_avail_bytes{{{_FOLDERS}}} / "
          f"node_filesystem_size_bytes{{{_FOLDERS}}} < 0.05", "15m", "look",
          "{{ $labels.mountpoint }} of {{ $labels.host }} has less than 5 % left"),
)  # fmt: skip


def alerts_yml() -> str:
    """The text of the rules file."""
    lines = ["# Written by rigup metrics", "groups:", "  - name: rigup", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.lasting}",
            f"        labels: {json.dumps({'severity': alert.severity})}",
            f"        annotations: {json.dumps({'summary': alert.summary})}",
        ]
    return "".join(f"{line}\n" for line in lines)
