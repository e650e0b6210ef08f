"""Does the service keep its promises, and if not, why?"""

from panels import OURS, Dashboard, Panel, Query, Row, now, quantiles, rate, share

_NOW = Row(
    "Now",
    (
        Panel(
            "Tokens per second",
            "Sent to clients.",
            (Query(rate("ostinato_generated_tokens_total")),),
            draw="number",
            width=4,
        ),
        Panel(
            "First token, p95",
            "Of all clients.",
            (
                Query(
                    "histogram_quantile(0.95, "
                    + rate("ostinato_time_to_first_token_seconds_bucket", by="le")
                    + ")"
                ),
            ),
            unit="s",
            draw="number",
            width=4,
        ),
        Panel(
            "In flight",
            "Requests that have not ended.",
            (Query(now("ostinato_requests_in_flight")),),
            draw="number",
            width=4,
        ),
        Panel(
            "Refused per second",
            "On purpose, whatever the reason.",
            (Query(rate("ostinato_requests_shed_total")),),
            unit="reqps",
            draw="number",
            width=4,
        ),
        Panel(
            "Replayed",
            "The share of calls that a recording answered.",
            (
                Query(
                    share(
                        rate("graph_calls_total", 'outcome="replayed"'), rate("graph_calls_total")
                    )
                ),
            ),
            unit="percentunit",
            draw="number",
            width=4,
        ),
        Panel(
            "Engines that work",
            "Of the replicas that answer.",
            (Query(now("ostinato_engine_up")),),
            draw="number",
            width=4,
        ),
    ),
)

_PROMISES = Row(
    "Promises",
    (
        Panel(
            "Time to first token",
            "What a client waits before anything moves. The breaker's default promise is 400 ms.",
            quantiles("ostinato_time_to_first_token_seconds"),
            unit="s",
        ),
        Panel(
            "Between two tokens",
            "How smoothly an answer flows. Rises with the number of rows.",
            quantiles("ostinato_inter_token_latency_seconds"),
            unit="s",
        ),
        Panel(
            "Time in the queue",
            "High while rows are free: pages run out. High with all rows taken: add a replica.",
            quantiles("ostinato_queue_seconds"),
            unit="s",
        ),
        Panel(
            "Error budget burnt",
            "1 spends the budget as fast as it may. Above it for a minute, the breaker opens.",
            (
                Query(
                    now("ostinato_breaker_burn_rate", by="objective, length_class", join="max"),
                    "{{objective}} {{length_class}}",
                ),
            ),
        ),
        Panel(
            "Breaker",
            "0 closed, 1 letting back in, 2 open; and on which rung of shedding it stands.",
            (
                Query(now("ostinato_breaker_state", by="instance", join="max"), "{{instance}}"),
                Query(now("ostinato_breaker_rung", by="instance", join="max"), "rung {{instance}}"),
            ),
        ),
        Panel(
            "Late first tokens by length of the prompt",
            "The share above 400 ms. Long prompts alone: declare an objective of their own.",
            (
                Query(
                    "1 - "
                    + share(
                        rate(
                            "ostinato_time_to_first_token_seconds_bucket",
                            'le="0.4"',
                            by="length_class",
                        ),
                        rate("ostinato_time_to_first_token_seconds_count", by="length_class"),
                    ),
                    "{{length_class}}",
                ),
            ),
            unit="percentunit",
        ),
    ),
)

_TRAFFIC = Row(
    "Traffic",
    (
        Panel(
            "Tokens per second",
            "Sent to clients, and read from prompts.",
            (
                Query(rate("ostinato_generated_tokens_total"), "generated"),
                Query(rate("ostinato_prompt_tokens_total"), "prompt"),
            ),
        ),
        Panel(
            "Requests per second",
            "Let in, by endpoint.",
            (Query(rate("ostinato_requests_total", by="kind"), "{{kind}}"),),
            draw="stacked",
            unit="reqps",
        ),
        Panel(
            "Refused per second",
            "Answered 429 or 503 on purpose. By the breaker: a promise is broken.",
            (Query(rate("ostinato_requests_shed_total", by="reason"), "{{reason}}"),),
            draw="stacked",
            unit="reqps",
        ),
        Panel(
            "Ended per second",
            "Anything but stop and length deserves a look at the log.",
            (Query(rate("ostinato_requests_ended_total", by="reason"), "{{reason}}"),),
            draw="stacked",
            unit="reqps",
        ),
        Panel(
            "Cut short per second",
            "Clients that went away, drains that ran out of time, an engine that was lost.",
            (Query(rate("ostinato_requests_aborted_total", by="reason"), "{{reason}}"),),
            draw="stacked",
            unit="reqps",
        ),
        Panel(
            "Whole requests",
            "From the request to its last token, by endpoint.",
            quantiles("ostinato_request_duration_seconds", by="kind"),
            unit="s",
        ),
    ),
)

_ENGINE = Row(
    "Engine",
    (
        Panel(
            "Rows and queue",
            "Rows that decode, rows there are, and requests that wait for one.",
            (
                Query(now("ostinato_engine_running_requests"), "running"),
                Query(now("ostinato_engine_rows"), "rows"),
                Query(now("ostinato_engine_waiting_requests"), "waiting"),
            ),
        ),
        Panel(
            "Keys and values",
            "Cached pages are given away when they are needed; used ones are not.",
            (Query(now("ostinato_kv_pages", by="state"), "{{state}}"),),
            draw="stacked",
        ),
        Panel(
            "Prompt tokens found in the cache",
            "The share of prompt tokens that needed no prefill.",
            (
                Query(
                    share(
                        rate("ostinato_prefix_cached_tokens_total"),
                        rate("ostinato_prefix_prompt_tokens_total"),
                    ),
                    "found",
                ),
            ),
            unit="percentunit",
        ),
        Panel(
            "Preemptions and failures per second",
            "A preempted request computes its prompt again: give pages or fewer rows.",
            (
                Query(rate("ostinato_preemptions_total"), "preempted"),
                Query(rate("ostinato_engine_failures_total", by="code"), "{{code}}"),
            ),
        ),
        Panel(
            "Since the last step",
            "Grows while the engine has work: it hangs, and the health probe will say so.",
            (
                Query(
                    now("ostinato_engine_idle_seconds", by="instance", join="max"), "{{instance}}"
                ),
            ),
            unit="s",
        ),
        Panel(
            "Weights in use",
            "Which version answers how many replicas: two during a roll-out, one after it.",
            (
                Query(
                    f"count by (model, version) (ostinato_model_info{{{OURS}}} == 1)",
                    "{{model}} {{version}}",
                ),
            ),
            draw="stacked",
        ),
    ),
)

_PROCESSES = Row(
    "Processes",
    (
        Panel(
            "Event loop lag, p99",
            "A front end that computes on its loop makes every stream stutter.",
            (
                Query(
                    "histogram_quantile(0.99, "
                    + rate("ostinato_event_loop_lag_seconds_bucket", by="le, process")
                    + ")",
                    "{{process}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            "Wait for Python's lock, p99",
            "High in a front end: start more of them. High in the engine: tell us.",
            (
                Query(
                    "histogram_quantile(0.99, "
                    + rate("ostinato_gil_wait_seconds_bucket", by="le, process")
                    + ")",
                    "{{process}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            "Cores in use",
            "Of each process.",
            (Query(rate("process_cpu_seconds_total", by="process"), "{{process}}"),),
            draw="stacked",
        ),
        Panel(
            "Memory",
            "Resident, of each process.",
            (Query(now("process_resident_memory_bytes", by="process"), "{{process}}"),),
            unit="bytes",
            draw="stacked",
            width=12,
        ),
        Panel(
            "Open file handles",
            "As a share of what the process may open.",
            (
                Query(
                    f"max by (process) (process_open_fds{{{OURS}}} / process_max_fds{{{OURS}}})",
                    "{{process}}",
                ),
            ),
            unit="percentunit",
            width=12,
        ),
    ),
)

SERVICE = Dashboard(
    "ostinato-service",
    "Ostinato: service",
    "Does the service keep its promises, and if not, why?",
    (_NOW, _PROMISES, _TRAFFIC, _ENGINE, _PROCESSES),
)
