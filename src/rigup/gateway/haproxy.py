"""HAProxy's configuration for a gateway, for version 2.6 and later. Pure.

Of 3.x it uses nothing, such as the JSON encoding of logs (3.0). What names a client is in map files, so that keys and
limits change without a reload.
"""

from __future__ import annotations

import hashlib
import re

from rigup.gateway import acme, cache_aware, responses
from rigup.gateway.paths import (
    ACME_FILE,
    ADMIN_SOCKET,
    CERTIFICATE_FILE,
    CLIENTS_FILE,
    HOLD_SOCKET,
    KEYS_FILE,
    MODELS_FILE,
)
from rigup.gateway.request_body import MODEL, ONE_MODEL
from rigup.gateway.responses import RETRY_SECONDS
from rigup.gateway.servers import HELD, backend_name, server_name
from rigup.gateway_settings import MOST_CLIENTS, Gateway, GatewayPlan, Route
from rigup.units import MIB, with_port

# Endpoints whose body names the model. Others of an engine manage it, and stay behind the gateway.
ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/classify",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/rerank",
    "/v1/responses",
    "/v1/score",
)
MOST_CONNECTIONS = 8_000
# Of the exporter, which must answer when clients have all of theirs.
MOST_OF_METRICS = 100
# What HAProxy keeps of a request whose head has no end, and for how long.
LONGEST_HEAD, HEAD_SECONDS = 65_536, 10
# Of memory in which HAProxy keeps requests that it may have to repeat: each takes a whole buffer until it is answered.
KEPT_MIB = 1024
# A frontend without keys bounds the head of a connection's first request alone, so it must be the only one.
ONE_REQUEST = "option httpclose"
LONGEST_MODEL = 200
# Of what is looked at as a model's name: each of its escapes takes time.
LONGEST_TEXT = 65_536
# By client and model, for the metrics: rigup's limits of both names, and a slash.
USAGE = "stick-table type string len 161 size 10k store http_req_cnt,http_fail_cnt,bytes_in_cnt,bytes_out_cnt"
LIMITS = "stick-table type string len 32 size 10k expire 2m store gpc0_rate(1m),conn_cur"
ADDRESSES = "stick-table type ipv6 size 100k expire 1m store conn_cur"
LIST = "if { method GET } { path /v1/models }"
# What a buffer holds beside the body: headers, and HAProxy's own list of parts.
BESIDE_BODY = 65_536
_LOG = (
    '{"client":"%[var(txn.client)]","model":"%[var(txn.model),json(utf8ps)]","backend":"%s","status":@status@,'
    '"bytes_in":%U,"bytes_out":%B,"queue_ms":%Tw,"first_byte_ms":@first@,"total_ms":@total@,"tries":"%rc","end":"%ts",'
    '"from":"%ci"}'
)


def _log(status: str, first: str, total: str) -> str:
    return _LOG.replace("@status@", status).replace("@first@", first).replace("@total@", total)


# HAProxy's own status and times of requests are for frontends that begin with HTTP.
LOG_FORMAT = _log("%[var(txn.status,0)]", "%[var(txn.first,-1)]", "%[date(0,ms),sub(txn.began)]")
# Of what was not HTTP, which has no variables.
LOG_OF_ERRORS = _log("0", "-1", "-1")


def configuration(plan: GatewayPlan, certificate: str | None = None) -> str:
    """The whole file, for one host; ends with a newline. Holds no key, and no hash of a client's.

    certificate: the file beside it, whose change shows in the digest.
    """
    text = _sections(plan, "@@")
    return text.replace("@@", hashlib.sha256(f"{text}{certificate or ''}".encode()).hexdigest()[:16], 1)


def digest_of(text: str) -> str:
    """What a gateway that runs with this configuration calls itself on its admin socket."""
    found = re.search(r"^  description ([0-9a-f]{16})$", text, re.MULTILINE)
    return found[1] if found else ""


def _sections(plan: GatewayPlan, digest: str) -> str:
    gateway = plan.gateway
    sections = [
        ("global", _global(gateway, digest)),
        ("defaults", _defaults()),
        ("frontend api", _frontend(plan)),
        ("backend models", _models(plan)),
        ("backend unknown-model", _unknown(plan)),
        *((f"backend {backend_name(route.model)}", _backend(plan, route)) for route in plan.routes),
        *cache_aware.sections(plan, _copies(gateway)),
    ]
    if gateway.clients:
        sections += [("backend clients", [LIMITS]), ("backend usage", [USAGE]), ("backend addresses", [ADDRESSES])]
    if gateway.hold:
        sections.append(("frontend hold", _hold()))
    sections += acme.challenge_sections(gateway, with_port(gateway.listen, acme.HTTP), [*_heads(), ONE_REQUEST])
    sections.append(("frontend metrics", _metrics(gateway)))
    return "# Written by rigup: gateway in group_data\n" + "\n".join(
        f"{name}\n" + "".join(f"  {line}\n" for line in lines) for name, lines in sections
    )


def _global(gateway: Gateway, digest: str) -> list[str]:
    return [
        f"description {digest}",
        f"stats socket {ADMIN_SOCKET} mode 600 level admin expose-fd listeners",
        "log stdout len 4096 format raw daemon",
        f"maxconn {MOST_CONNECTIONS}",
        # the whole body must fit, because clients write the model after the messages
        f"tune.bufsize {_buffer(gateway)}",
        "ssl-default-bind-options ssl-min-ver TLSv1.2",
        # how long a replaced process may finish its streams
        "hard-stop-after 1h",
    ]


def _buffer(gateway: Gateway) -> int:
    return gateway.body_limit_mib * MIB + BESIDE_BODY


def _defaults() -> list[str]:
    return [
        "mode http",
        "log global",
        f"log-format {_quoted(LOG_FORMAT)}",
        f"error-log-format {_quoted(LOG_OF_ERRORS)}",
        "option dontlognull",
        # without it, each event of a stream waits for up to 0.1 s
        "option http-no-delay",
        # a reload lets an idle client ask once more, and then tells it to connect again
        "option idle-close-on-response",
        # engines close idle connections at times of their own; a request on one would be lost
        "option http-server-close",
        "option abortonclose",
        # a host that loses power closes no connection; the limits of what is sent are those of the servers
        "option srvtcpka",
        "srvtcpka-idle 5s",
        "srvtcpka-intvl 2s",
        "srvtcpka-cnt 3",
        "timeout connect 1s",
        "timeout check 5s",
        f"timeout http-request {HEAD_SECONDS}s",
        "timeout http-keep-alive 5m",
        "timeout queue 60s",
        # HAProxy 2.6 has no other bound for a client that does not begin with TLS; one that waits for its answer, or
        # for more of it, may take longer
        "timeout client 5m",
        "timeout server 1h",
        *(_own_error(status, text) for status, text in responses.OWN.items()),
    ]


def _own_error(status: int, text: str) -> str:
    later = f" hdr retry-after {RETRY_SECONDS}" if status == 503 else ""
    return f"http-error status {status} content-type application/json{later} string {_quoted(text)}"


def _frontend(plan: GatewayPlan) -> list[str]:
    gateway = plan.gateway
    tls = f" ssl crt {ACME_FILE if gateway.acme else CERTIFICATE_FILE} alpn http/1.1" if gateway.tls else ""
    largest = gateway.body_limit_mib * MIB
    return [
        "mode tcp",
        f"bind {with_port(gateway.listen, gateway.port)}{tls}",
        f"maxconn {MOST_CLIENTS}",
        *(_addresses(gateway) if gateway.clients else ()),
        *_heads(),
        'http-request return status 200 content-type text/plain string "ok" if { method GET } { path /health }',
        *_clients(gateway),
        f"http-request allow {LIST}",
        f"acl endpoint path {' '.join(ENDPOINTS)}",
        _answer(404, responses.NOT_FOUND, "unless { method POST } endpoint"),
        *(_rates() if gateway.clients else ()),
        _answer(415, responses.ENCODED, "if { req.fhdr(content-encoding) -m found }"),
        _answer(413, responses.TOO_LARGE, f"if {{ req.body_size gt {largest} }}"),
        "http-request wait-for-body time 60s",
        _answer(413, responses.TOO_LARGE, f"if {{ req.body_size gt {largest} }}"),
        _answer(400, responses.NO_MODEL, "unless { req.body -m sub '\"model\"' }"),
        # all that is text to HAProxy ends with its first null
        "http-request set-var(txn.size) req.body_len",
        f"acl one-model req.body -m reg {_quoted(ONE_MODEL)}",
        _answer(400, responses.NOT_ONE_MODEL, "unless one-model { req.body,length,sub(txn.size) -m int eq 0 }"),
        f"http-request set-var(txn.model) {_model()}",
        _answer(400, responses.NO_MODEL, "unless { var(txn.model) -m found } { var(txn.model) -m len gt 0 }"),
        # as what the body was read here; some engines go by it
        "http-request set-header content-type application/json",
        *_known(plan),
        # texts with variables are for sections that begin with HTTP
        f"use_backend models {LIST}",
        f"use_backend unknown-model{_unless_known(plan)}",
        *cache_aware.rules(plan),
        *(
            f"use_backend {backend_name(route.model)} if {{ var(txn.model) -m str {route.model} }}"
            for route in plan.routes
        ),
    ]


def _model() -> str:
    """How to find the model of a body that has one. json_query alone does not know the slash that PHP escapes."""
    name = f"req.body,regsub('{ONE_MODEL}','\\{MODEL}'),bytes(0,{LONGEST_TEXT})"
    expression = f"{name},regsub('\\\\/',/,g),json_query($),bytes(0,{LONGEST_MODEL})"
    return '"' + re.sub(r'[\\"$]', r"\\\g<0>", expression) + '"'


def _addresses(gateway: Gateway) -> list[str]:
    """Nobody takes the gateway away from others with one machine, least of all without a key."""
    return [
        # a client with an IPv6 address has a /64
        "tcp-request connection track-sc2 src,ipmask(32,64) table addresses",
        f"tcp-request connection reject if {{ sc2_conn_cur gt {gateway.connections_per_address} }}",
        # only who has a key keeps a connection
        "http-after-response set-header connection close unless { var(txn.found) -m found }",
    ]


def _heads() -> list[str]:
    """Waits for the head of a connection's first request before HTTP does, whose buffer has room for a whole body.

    These rules also see every later request, which is HTTP already. Of HTTP/2, heads are frames, which HAProxy would
    keep up to a whole buffer, and a connection without a key would stay: it is not offered.
    """
    # not an empty line alone: HTTP skips those in front of a request, and would then wait for its head
    end = '-m reg "[^\\r\\n]\\r?\\n\\r?\\n"'
    # of a later request, what was read is not text, and has part of the body
    first = f"!{{ var(sess.http) -m found }} {{ var(txn.length) -m int gt {LONGEST_HEAD} }}"
    endless = f"{first} !{{ req.payload(0,{LONGEST_HEAD}) {end} }}"
    # what begins no request, such as TLS, is HTTP's to refuse, as is what has an end and is not HTTP
    alien = '{ req.payload(0,1) -m reg "[\\x01-\\x08\\x0e-\\x1f]" }'
    return [
        f"tcp-request inspect-delay {HEAD_SECONDS}s",
        "tcp-request content set-var(txn.began) date(0,ms)",
        # req.len itself would be waited for until it is more
        "tcp-request content set-var(txn.length) req.len",
        # of a connection that was never HTTP, the line would not be JSON
        f"tcp-request content set-log-level silent if {endless}",
        f"tcp-request content reject if {endless}",
        f"tcp-request content switch-mode http proto h1 if HTTP or {{ req.payload(0,0) {end} }} or {alien}",
        # it did not come in time
        "tcp-request content set-log-level silent",
        "tcp-request content reject",
        "http-request set-var(sess.http) bool(true)",
        "http-response set-var(txn.first) date(0,ms),sub(txn.began)",
        "http-after-response set-var(txn.status) status",
    ]


def _clients(gateway: Gateway) -> list[str]:
    if not gateway.clients:
        return []
    found = f"sha2(256),hex,lower,map_str({CLIENTS_FILE})"
    return [
        f"http-request set-var(txn.found) req.fhdr(authorization),word(2,' '),{found} "
        "if { req.fhdr(authorization) -m beg -i bearer }",
        _answer(401, responses.NO_KEY, "unless { var(txn.found) -m found }", "www-authenticate Bearer"),
        "http-request set-var(txn.client) var(txn.found),json_query('$.name')",
        "http-request set-var(txn.models) var(txn.found),json_query('$.models')",
    ]


def _models(plan: GatewayPlan) -> list[str]:
    """The models that there are, or those of the client."""
    if plan.gateway.clients:
        text = f'lf-string "%[var(txn.client),map_str({MODELS_FILE})]"'
        return [f"http-request return status 200 content-type application/json {text}"]
    return [_answer(200, responses.model_list(plan.models))]


def _rates() -> list[str]:
    """Limits by client. A refused request does not count, or a client that keeps asking would never be let in."""
    per_minute, together = "requests_per_minute", "concurrency"
    return [
        "http-request track-sc0 var(txn.client) table clients",
        *(
            f"http-request set-var(txn.{limit}) var(txn.found),json_query('$.{limit}','int')"
            for limit in (per_minute, together)
        ),
        _answer(
            429,
            responses.TOO_MANY,
            f"if {{ var(txn.{per_minute}) -m found }} {{ sc_gpc0_rate(0),sub(txn.{per_minute}) -m int ge 0 }}",
            f"retry-after {RETRY_SECONDS}",
        ),
        _answer(
            429,
            responses.TOO_BUSY,
            f"if {{ var(txn.{together}) -m found }} {{ sc_conn_cur(0),sub(txn.{together}) -m int gt 0 }}",
            "retry-after 1",
        ),
        "http-request sc-inc-gpc0(0)",
    ]


def _known(plan: GatewayPlan) -> list[str]:
    """A model that nobody serves, and one that the client may not use."""
    lines = [f"http-request allow{_unless_known(plan)}"]
    if plan.gateway.clients:
        may = f"var(txn.client),concat(/,txn.model),map_str({MODELS_FILE})"
        lines.append(_answer(403, responses.NOT_YOURS, f"unless {{ {may} -m found }}"))
        lines.append("http-request track-sc1 var(txn.client),concat(/,txn.model) table usage")
    return lines


def _unless_known(plan: GatewayPlan) -> str:
    return f" unless {{ var(txn.model) -m str {' '.join(plan.models)} }}" if plan.models else ""


def _unknown(plan: GatewayPlan) -> list[str]:
    names = "%[var(txn.models)]" if plan.gateway.clients else ", ".join(plan.models)
    text = _quoted(responses.unknown_model(names))
    return [f"http-request return status 404 content-type application/json lf-string {text}"]


def _copies(gateway: Gateway) -> int:
    return KEPT_MIB // gateway.body_limit_mib


def _backend(plan: GatewayPlan, route: Route) -> list[str]:
    gateway = plan.gateway
    key = f'http-request set-header authorization "Bearer %[var(txn.model),map_str({KEYS_FILE})]"'
    alone = len(route.backends) == 1
    return [
        *_retries(gateway, alone),
        f"http-request disable-l7-retry if {{ be_conn gt {_copies(gateway)} }}",
        # keys of the client go no further; Anthropic's clients may send both
        "http-request del-header authorization",
        "http-request del-header x-api-key",
        *((key,) if route.key_file else ()),
        *cache_aware.pinned(plan, route),
        f"option httpchk GET {route.backends[0].health_path}",
        "http-check expect status 200",
        *(
            f"server {server_name(one)} {with_port(one.address, one.port)} weight {one.weight}"
            for one in route.backends
        ),
        # where requests wait
        *((f"server {HELD} unix@{HOLD_SOCKET} no-check{'' if alone else ' backup'}",) if gateway.hold else ()),
    ]


def _retries(gateway: Gateway, alone: bool) -> list[str]:
    """How an engine is chosen, how often a request is tried, after what, and when an engine counts as away.

    A crash must not send a request to engine after engine, so one that an engine has taken is tried once elsewhere.
    With `hold`, the place to wait is a server that answers 503 after a second, so that retries are seconds. It is a
    backup where there are several engines. Where there is only one (alone), it is the next server in the list: HAProxy
    would repeat a 503 of the only engine at once, and any number of retries be used up before the next check.
    """
    check = (
        "default-server check inter 500ms fastinter 250ms downinter 250ms fall 2 rise 1 init-addr libc,none tcp-ut 10s"
    )
    again = ["option redispatch 1", f"retries {gateway.hold or 1}"]
    if gateway.hold and alone:
        return ["balance first", *again, "retry-on conn-failure empty-response 503", check]
    if gateway.hold:
        observed = "observe layer4 error-limit 1 on-error mark-down"
        return ["balance leastconn", *again, "retry-on conn-failure 503", f"{check} {observed}"]
    return ["balance leastconn", *again, "retry-on conn-failure empty-response 503", check]


def _hold() -> list[str]:
    """Answers 503 after a second, which makes the backend try again: on an engine if one is up by then."""
    return [
        f"bind unix@{HOLD_SOCKET} mode 600",
        "http-request set-log-level silent",
        "timeout tarpit 1s",
        "http-request tarpit deny_status 503",
    ]


def _metrics(gateway: Gateway) -> list[str]:
    return [
        "mode tcp",
        f"bind {with_port(gateway.metrics_listen, gateway.metrics_port)}",
        f"maxconn {MOST_OF_METRICS}",
        *_heads(),
        ONE_REQUEST,
        "http-request set-log-level silent",
        "http-request use-service prometheus-exporter if { method GET } { path /metrics }",
        _answer(404, responses.NOT_FOUND),
    ]


def _answer(status: int, text: str, condition: str = "", header: str = "") -> str:
    more = f" hdr {header}" if header else ""
    line = f"http-request return status {status} content-type application/json{more} string {_quoted(text)}"
    return f"{line} {condition}".rstrip()


def _quoted(text: str) -> str:
    """A word for HAProxy."""
    if "'" in text:
        raise ValueError(f"a single quote in {text}")
    return f"'{text}'"
