"""Are the steps replayed, what do recordings cost, and how much of them is padding?"""

from panels import Dashboard, Panel, Query, Row, now, quantiles, rate, share

_REUSE = Row(
    "Are recordings used?",
    (
        Panel(
            "Calls answered by a replay",
            "From the sums over all replicas. Below 95 % after the warm-up: the reasons say why.",
            (
                Query(
                    share(
                        rate("graph_calls_total", 'outcome="replayed"'), rate("graph_calls_total")
                    ),
                    "replayed",
                ),
            ),
            unit="percentunit",
        ),
        Panel(
            "Calls per second by outcome",
            "Replayed, run eagerly, or run while a recording was made.",
            (Query(rate("graph_calls_total", by="outcome"), "{{outcome}}"),),
            draw="stacked",
        ),
        Panel(
            "Why calls ran eagerly",
            "`ostinato explain REASON` says what each means and what to change.",
            (Query(rate("graph_calls_total", 'outcome="eager"', by="reason"), "{{reason}}"),),
            draw="stacked",
        ),
        Panel(
            "Reuse as each process tells it",
            "Since its start. One replica below the others: it meets other shapes.",
            (Query(now("graph_reuse_rate", by="instance", join="min"), "{{instance}}"),),
            unit="percentunit",
        ),
    ),
)

_BUCKETS = Row(
    "Which sizes run, and what padding costs",
    (
        Panel(
            "Steps per second by rows of the recording",
            "A heat map over time: where the traffic lives.",
            (Query(rate("graph_bucket_steps_total", by="bucket"), "{{bucket}}"),),
            draw="heat",
            width=12,
        ),
        Panel(
            "Padding by rows of the recording",
            "The share of computed rows that gave no token.",
            (
                Query(
                    share(
                        rate("graph_bucket_padding_total", by="bucket"),
                        rate("graph_bucket_rows_total", by="bucket"),
                    ),
                    "{{bucket}} rows",
                ),
            ),
            unit="percentunit",
            width=12,
        ),
    ),
)

_COST = Row(
    "What recordings cost",
    (
        Panel(
            "Recordings made per minute",
            "After the warm-up this is zero, but for new shapes.",
            (
                Query(f"60 * {rate('graph_build_duration_seconds_count')}", "made"),
                Query(f"60 * {rate('graph_recapture_count_total')}", "made again"),
                Query(f"60 * {rate('graph_evictions_total')}", "given up for room"),
            ),
        ),
        Panel(
            "Time to make one",
            "A request that needs it waits for it.",
            quantiles("graph_build_duration_seconds"),
            unit="s",
        ),
        Panel(
            "Memory they hold",
            "Of the budget of each runner.",
            (Query(now("graph_bytes", by="instance"), "{{instance}}"),),
            unit="bytes",
            draw="stacked",
        ),
        Panel(
            "Device time per step",
            "Of the decode steps; without a GPU there is none.",
            (
                Query(
                    share(
                        rate("ostinato_engine_device_seconds_total"),
                        rate("ostinato_engine_steps_total"),
                    ),
                    "per step",
                ),
            ),
            unit="s",
        ),
    ),
)

_MODELS = Row(
    "Callables and encoders",
    (
        Panel(
            "How busy",
            "The share of the time in which a batch runs. Near 1: add a replica.",
            (Query(rate("ostinato_model_busy_seconds_total", by="model, instance"), "{{model}}"),),
            unit="percentunit",
        ),
        Panel(
            "Rows in a batch",
            "The mean. Near 1 with requests waiting: let the first wait longer for company.",
            (
                Query(
                    share(
                        rate("ostinato_model_rows_total", by="model"),
                        rate("ostinato_model_batches_total", by="model"),
                    ),
                    "{{model}}",
                ),
            ),
        ),
        Panel(
            "Waiting and running",
            "Requests. What waits and does not fall: more come than can be answered.",
            (
                Query(now("ostinato_model_waiting_requests", by="model"), "{{model}} wait"),
                Query(now("ostinato_model_running_requests", by="model"), "{{model}} run"),
            ),
        ),
        Panel(
            "How requests ended",
            "Late: their time was over. Refused: the queue was full.",
            (
                Query(
                    rate("ostinato_model_answers_total", by="model, outcome"),
                    "{{model}} {{outcome}}",
                ),
            ),
            draw="stacked",
            unit="reqps",
        ),
        Panel(
            "Padding",
            "Rows of padding for each row that was asked for. Much of it: record more sizes.",
            (
                Query(
                    share(
                        rate("ostinato_model_padded_rows_total", by="model"),
                        rate("ostinato_model_rows_total", by="model"),
                    ),
                    "{{model}}",
                ),
            ),
        ),
        Panel(
            "How calls were answered",
            "`ostinato explain REASON` says what each means and what to change.",
            (
                Query(
                    rate("ostinato_model_calls_total", by="model, outcome, reason"),
                    "{{model}} {{outcome}} {{reason}}",
                ),
            ),
            draw="stacked",
        ),
    ),
)

RECORDINGS = Dashboard(
    "ostinato-recordings",
    "Ostinato: recordings",
    "Are the steps replayed, what do they cost, and how much of them is padding?",
    (_REUSE, _BUCKETS, _COST, _MODELS),
)
