"""The configuration that Envoy gets from deploy/envoy, as Envoy Gateway makes it of such policies.

Nothing of a policy is passed over: a field that is not translated here is an error, so whatever is
shipped is what the real Envoy of the tests runs.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from deploy.manifests import the

CLUSTER = "ostinato"
_TYPE = "type.googleapis.com"
Told = dict[str, Any]


class Policy:
    """The fields of a policy, each taken once."""

    def __init__(self, fields: Told) -> None:
        self._left = deepcopy(fields)

    def take(self, path: str, default: Any = None) -> Any:
        """Return the field at a dotted path, and note that it was translated."""
        at = self._left
        *way, last = path.split(".")
        for word in way:
            at = at.get(word, {})
        return at.pop(last, default)

    def finish(self) -> None:
        """Fail if a field was not translated."""
        assert not (left := _leaves(self._left)), f"not translated: {left}"


def _leaves(fields: Any, path: str = "") -> list[str]:
    if not isinstance(fields, dict):
        return [path]
    return [leaf for key, value in fields.items() for leaf in _leaves(value, f"{path}.{key}")]


def seconds(duration: str) -> str:
    """Return one of Kubernetes' durations as Envoy writes them."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m)", duration).groups()  # type: ignore[union-attr]
    return f"{int(number) * {'ms': 0.001, 's': 1, 'm': 60}[unit]:g}s"


def backend() -> Told:
    """Return the spec of the shipped policy of the backend."""
    spec: Told = the("envoy/backend.yaml", "BackendTrafficPolicy")["spec"]
    return spec


def bootstrap(port: int, admin_port: int, endpoints: str, spec: Told | None = None) -> Told:
    """Return a whole configuration of Envoy.

    Args:
        endpoints: The file that says who is behind it; it is read again when it is replaced.
        spec: Of the backend's policy, if not the shipped one.
    """
    policy = Policy(spec or backend())
    policy.take("targetRefs")
    cluster, retries = _cluster(policy, endpoints), _retries(policy)
    action = {
        "cluster": CLUSTER,
        "timeout": seconds(policy.take("timeout.http.requestTimeout")),
        "idle_timeout": seconds(policy.take("timeout.http.streamIdleTimeout")),
        "retry_policy": retries,
    }
    policy.finish()
    return {
        "node": {"id": "test", "cluster": "test"},
        "admin": {"address": _address(admin_port)},
        "static_resources": {"listeners": [_listener(port, action)], "clusters": [cluster]},
    }


def _cluster(policy: Policy, endpoints: str) -> Told:
    assert policy.take("loadBalancer.type") == "LeastRequest"
    least = {
        "slow_start_config": {
            "slow_start_window": seconds(policy.take("loadBalancer.slowStart.window"))
        }
    }
    return {
        "name": CLUSTER,
        "type": "EDS",
        "eds_cluster_config": {
            "service_name": CLUSTER,
            "eds_config": {
                "resource_api_version": "V3",
                "path_config_source": {"path": endpoints},
            },
        },
        "connect_timeout": seconds(policy.take("timeout.tcp.connectTimeout")),
        "lb_policy": "LEAST_REQUEST",
        "least_request_lb_config": least,
        "common_lb_config": {
            "healthy_panic_threshold": {"value": policy.take("healthCheck.panicThreshold")}
        },
        "outlier_detection": _outliers(policy),
        "circuit_breakers": {"thresholds": [_limits(policy)]},
    }


def _outliers(policy: Policy) -> Told:
    passive = "healthCheck.passive."
    return {
        "consecutive_5xx": policy.take(f"{passive}consecutive5XxErrors"),
        "interval": seconds(policy.take(f"{passive}interval")),
        "base_ejection_time": seconds(policy.take(f"{passive}baseEjectionTime")),
        "max_ejection_percent": policy.take(f"{passive}maxEjectionPercent"),
        "always_eject_one_host": policy.take(f"{passive}alwaysEjectOneEndpoint"),
    }


def _limits(policy: Policy) -> Told:
    breaker = "circuitBreaker."
    budget = f"{breaker}retryBudget."
    return {
        "max_connections": policy.take(f"{breaker}maxConnections"),
        "max_pending_requests": policy.take(f"{breaker}maxPendingRequests"),
        "max_requests": policy.take(f"{breaker}maxParallelRequests"),
        "retry_budget": {
            "budget_percent": {"value": policy.take(f"{budget}percent.numerator")},
            "min_retry_concurrency": policy.take(f"{budget}minRetryConcurrency"),
        },
    }


def _retries(policy: Policy) -> Told:
    return {
        "num_retries": policy.take("retry.numRetries"),
        "retry_on": ",".join(policy.take("retry.retryOn.triggers")),
        "retriable_status_codes": policy.take("retry.retryOn.httpStatusCodes"),
        "per_try_timeout": seconds(policy.take("retry.perRetry.timeout")),
        "retry_back_off": {
            "base_interval": seconds(policy.take("retry.perRetry.backOff.baseInterval")),
            "max_interval": seconds(policy.take("retry.perRetry.backOff.maxInterval")),
        },
        # The gateway's own: another replica, if there is one.
        "host_selection_retry_max_attempts": 5,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {
                    "@type": f"{_TYPE}/envoy.extensions.retry.host.previous_hosts.v3."
                    "PreviousHostsPredicate"
                },
            }
        ],
    }


def _listener(port: int, action: Told) -> Told:
    clients = Policy(the("envoy/client.yaml", "ClientTrafficPolicy")["spec"])
    clients.take("targetRefs")
    manager = {
        "@type": f"{_TYPE}/envoy.extensions.filters.network.http_connection_manager.v3."
        "HttpConnectionManager",
        "stat_prefix": "clients",
        "request_timeout": seconds(clients.take("timeout.http.requestReceivedTimeout")),
        "common_http_protocol_options": {
            "idle_timeout": seconds(clients.take("timeout.http.idleTimeout"))
        },
        "route_config": {
            "virtual_hosts": [
                {
                    "name": CLUSTER,
                    "domains": ["*"],
                    "routes": [{"match": match, "route": action} for match in _matches()],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {
                    "@type": f"{_TYPE}/envoy.extensions.filters.http.router.v3.Router"
                },
            }
        ],
    }
    clients.finish()
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {"address": _address(port), "filter_chains": [{"filters": filters}]}


def _matches() -> list[Told]:
    (rule,) = the("envoy/route.yaml", "HTTPRoute")["spec"]["rules"]
    kinds = {"PathPrefix": "path_separated_prefix", "Exact": "path"}
    paths = [match["path"] for match in rule["matches"]]
    return [{kinds[path["type"]]: path["value"]} for path in paths]


def _address(port: int) -> Told:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def assignment(ports: dict[str, int]) -> Told:
    """Return what the file of the endpoints says: these servers, and no others."""
    living = [{"endpoint": {"address": _address(port)}} for port in ports.values()]
    return {
        "resources": [
            {
                "@type": f"{_TYPE}/envoy.config.endpoint.v3.ClusterLoadAssignment",
                "cluster_name": CLUSTER,
                "endpoints": [{"lb_endpoints": living}],
            }
        ]
    }
