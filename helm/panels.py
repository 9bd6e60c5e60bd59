"""The panels of the dashboard, row by row, with their queries.

The queries of a panel are a dictionary from legend to expression. A series may not exist before its first event; the
expression then returns 0 itself. Only durations have no value before the first request or job. Never sum figures that every
API process reads from PostgreSQL over processes.
"""

import json
from pathlib import Path

SELECTED = 'namespace=~"$namespace",instance=~"$instance"'
# Operations that wait by design or depend on others, and such pages. The alert AssayRequestsSlow excludes the same ones.
OPERATIONS = json.loads((Path(__file__).parent.parent / "docs/operations.json").read_text())
SLOW_PAGES = ["GET /jobs/{job_id}", "POST /suites/{suite_id}/submissions", "GET /compare", "POST /domains/{domain}/verify"]
SLOW_OPERATIONS = [name for one in OPERATIONS if one["slow"] for name in (f"{one['method']} {one['path']}", *one["rpcs"])]
SLOW_BY_DESIGN = "|".join(["unknown", *SLOW_OPERATIONS, *SLOW_PAGES])
NOT_PROBES = 'operation!~"unknown|GET /health|assay.v1.HealthService/GetHealth"'
# The same outcomes as in the alerts AssayEngineDown and AssayEngineSaturated.
ENGINE_FAILED, ENGINE_REFUSED = 'outcome=~"circuit_open|timeout|unavailable|error|invalid"', 'outcome=~"saturated|exhausted"'
PLATFORM_FAILURES = 'outcome=~"internal|timeout|input_unavailable"'
SERVER_ERRORS = 'outcome="server_error"'
FAST_OPERATIONS = f'operation!~"{SLOW_BY_DESIGN}"'
WITHIN_HALF_A_SECOND = f'le="0.5",{FAST_OPERATIONS}'
OPERATION = 'operation=~"$operation"'
API, WORKER, ENGINE = 'binary="assay-api"', 'binary="assay-worker"', 'binary="assay-worker serve"'
DELIVERER, RECEIPT_LOG = 'binary="assay-api deliver"', 'binary="assay-api log"'
QUEUED, BUSY = 'state="queued"', 'state="busy"'
# Many exporters report the process_… metrics. The join with assay_build_info selects Assay's processes.
OWN_PROCESSES = "* on (namespace, job, instance) group_left (binary) max by (namespace, job, instance, binary) (assay_build_info)"


def series(metric, labels=""):
    """Returns a selector of the metric's series in the selected namespaces and instances."""
    return f"{metric}{{{labels + ',' if labels else ''}{SELECTED}}}"


def rate(metric, labels="", by=""):
    """Returns the metric's rate per second, or 0 before the first event."""
    if not by:
        return f"sum(rate({series(metric, labels)}[$__rate_interval])) or vector(0)"
    first = by.split(", ")[0]
    return f'sum by ({by}) (rate({series(metric, labels)}[$__rate_interval])) or on () label_replace(vector(0), "{first}", "none", "", "")'


def per_installation(metric, labels="", by=""):
    """Returns the value that every API process reports for its installation, counted once per installation."""
    return f"sum by ({by}) (max by (namespace{', ' + by if by else ''}) ({series(metric, labels)}))"


def quantiles(metric, labels="", by=""):
    """Returns the queries of the 50th, 95th and 99th percentile."""
    le = f"le, {by}" if by else "le"
    buckets = f"sum by ({le}) (rate({series(metric + '_bucket', labels)}[$__rate_interval]))"
    legend = f" {{{{{by}}}}}" if by else ""
    return {f"p{share:g}{legend}": f"histogram_quantile({share / 100:g}, {buckets})" for share in (50, 95, 99)}


def per_instance(metric):
    """Returns the value of each process, or 0 if no process exports the metric."""
    return f"sum by (instance) ({series(metric)}) or on () vector(0)"


def share_of_engine_calls(labels):
    """Returns the share of the calls of each engine with these outcomes."""
    of_all = f"sum by (engine) (rate({series('assay_engine_client_calls_total')}[$__rate_interval]))"
    with_labels = f"sum by (engine) (rate({series('assay_engine_client_calls_total', labels)}[$__rate_interval]))"
    return f"{with_labels} / clamp_min({of_all}, 0.000001) or on () vector(0)"


def panel(kind, title, description, queries, unit="short", width=8, bounds=(), alerts=(), stacked=False, names=False):
    """Describes a panel. The first of `bounds` is negative if low values are bad."""
    return locals()


def stat(title, description, query, **more):
    """Describes a panel with one figure."""
    queries = query if isinstance(query, dict) else {"": query}
    return panel("stat", title, description, queries, **({"width": 4} | more))


def lines(title, description, queries, **more):
    """Describes a panel with lines over time."""
    return panel("timeseries", title, description, queries, **more)


OVERVIEW = [
    stat("Alerts", "Alerts that fire now. Each has a runbook.",
         'count(ALERTS{alertname=~"Assay.*",alertstate="firing",namespace=~"$namespace"}) or vector(0)', bounds=(1,)),
    stat("API processes", "Processes of assay-api that can be scraped. With fewer than two, a restart is an outage.",
         f"count({series('assay_build_info', API)}) or vector(0)", bounds=(-1, 2), alerts=["AssayApiAbsent"]),
    stat("Workers with a lease", "Workers that renewed their lease in the last ten seconds, read from PostgreSQL. At 0 no job is scored.",
         per_installation("assay_workers"), bounds=(-1, 2), alerts=["AssayWorkersAbsent"]),
    stat("Requests per second", "All requests, in all protocols.", rate("assay_requests_total")),
    stat("Server errors, last hour", "Share of requests that ended in a server error, without probes. The error budget allows 0.1% over "
         "a month.",
         f"(sum(rate({series('assay_requests_total', NOT_PROBES + ',' + SERVER_ERRORS)}[1h])) or vector(0))"
         f" / clamp_min(sum(rate({series('assay_requests_total', NOT_PROBES)}[1h])) or vector(0), 0.000001)",
         unit="percentunit", bounds=(0.001, 0.006), alerts=["AssayErrorBudgetBurnFast", "AssayErrorBudgetBurnSlow"]),
    stat("Slower than 0.5 s", "Share of requests, without operations that are slow by design. Above 5%, find the operation in the "
         "row Requests.",
         f"(sum(rate({series('assay_request_duration_seconds_count', FAST_OPERATIONS)}[10m]))"
         f" - sum(rate({series('assay_request_duration_seconds_bucket', WITHIN_HALF_A_SECOND)}[10m])))"
         f" / clamp_min(sum(rate({series('assay_request_duration_seconds_count', FAST_OPERATIONS)}[10m])), 0.000001) or vector(0)",
         unit="percentunit", bounds=(0.01, 0.05), alerts=["AssayRequestsSlow"]),
    stat("Active jobs", "Queued and running jobs, read from PostgreSQL.", {"{{state}}": per_installation("assay_jobs", by="state")}),
    stat("Oldest queued job", "Time that the job at the head of the queue has waited. Without load it is milliseconds.",
         f"max({series('assay_job_oldest_age_seconds', QUEUED)})", unit="s", bounds=(60, 300),
         alerts=["AssayQueueWaitLong", "AssayQueueStalled"]),
    stat("Slots in use", "Share of all worker slots that are busy. Near 100% with queued jobs, add workers.",
         f"sum({series('assay_worker_slots', BUSY)}) / clamp_min(sum({series('assay_worker_slots')}), 1) or vector(0)",
         unit="percentunit", bounds=(0.8, 0.95), alerts=["AssayWorkersSaturated"]),
    stat("Failed jobs, last day", "Jobs that failed with internal, timeout or input_unavailable. Look into the log for each.",
         f"sum(increase({series('assay_jobs_finished_total', PLATFORM_FAILURES)}[1d])) or vector(0)", bounds=(1, 10),
         alerts=["AssayJobsFailing"]),
    stat("Processes without …", "Processes that got no response from PostgreSQL or Redis at their last check. Without PostgreSQL "
         "nothing works. Without Redis everything works, but rate limits are less exact.",
         {"PostgreSQL": f"count({series('assay_database_up')} == 0) or vector(0)",
          "Redis": f"count({series('assay_redis_up')} == 0) or vector(0)"},
         bounds=(1,), alerts=["AssayDatabaseDown", "AssayRedisDown"]),
    stat("Builds", "Running builds. Several builds of one binary, for longer than a deployment takes, mean that the deployment is stuck.",
         {"{{binary}} {{version}} {{git_sha}}": f"count by (binary, version, git_sha) ({series('assay_build_info')})"}, names=True),
]

REQUESTS = [
    lines("Requests by protocol", "Requests per second. If one protocol drops to 0 while the others continue, check the proxy.",
          {"{{protocol}}": rate("assay_requests_total", by="protocol")}, unit="reqps", stacked=True),
    lines("Requests by outcome", "Clients cause client errors, the platform causes server errors.",
          {"{{outcome}}": rate("assay_requests_total", by="outcome")}, unit="reqps", stacked=True),
    lines("In flight", "Requests in progress, by process, including those that wait for jobs. If they rise steadily without more requests, "
          "something is unresponsive.", {"{{instance}}": f"sum by (instance) ({series('assay_requests_in_flight')})"}),
    lines("Errors by code", "Error responses, by error code. `internal` is a bug; the log has the cause. `unavailable` means that a "
          "dependency or a resource was missing.", {"{{code}}": rate("assay_request_errors_total", by="code")}, unit="reqps",
          alerts=["AssayErrorBudgetBurnFast", "AssayErrorBudgetBurnSlow"]),
    lines("Server errors by operation", "The ten operations with the most server errors.",
          {"{{operation}}": f"topk(10, {rate('assay_requests_total', SERVER_ERRORS, by='operation')})"}, unit="reqps",
          alerts=["AssayErrorBudgetBurnFast", "AssayErrorBudgetBurnSlow"]),
    lines("Share of server errors", "Share of all requests, without probes. The line is the error budget of a month.",
          {"errors": f"({rate('assay_requests_total', NOT_PROBES + ',' + SERVER_ERRORS)})"
                     f" / clamp_min({rate('assay_requests_total', NOT_PROBES)}, 0.000001)"},
          unit="percentunit", bounds=(0.001,), alerts=["AssayErrorBudgetBurnFast", "AssayErrorBudgetBurnSlow"]),
    lines("Latency of the selected operations", "By protocol, from request headers to response headers. If all operations are "
          "selected, this includes requests that wait for jobs.", quantiles("assay_request_duration_seconds", OPERATION, by="protocol"),
          unit="s"),
    lines("p95 of the slowest operations", "The ten slowest operations, without those that are slow by design.",
          {"{{operation}} {{protocol}}": "topk(10, histogram_quantile(0.95, sum by (le, operation, protocol) "
           f"(rate({series('assay_request_duration_seconds_bucket', FAST_OPERATIONS)}[$__rate_interval]))))"},
          unit="s", bounds=(0.5,), alerts=["AssayRequestsSlow"]),
    panel("heatmap", "Latency of the selected operations, by bucket", "Requests per second in each bucket. Two bands are two kinds of "
          "requests. A band that moves up became slower.",
          {"{{le}}": f"sum by (le) (rate({series('assay_request_duration_seconds_bucket', OPERATION)}[$__rate_interval]))"},
          unit="s"),
]

LIMITS = [
    lines("Rate limit, by plan", "Decisions per second. `refused`: the organization exceeded its requests per minute (429). "
          "`saturated`: it exceeded its share of concurrent requests or of memory (503).",
          {"{{plan}} {{decision}}": rate("assay_ratelimit_decisions_total", by="plan, decision")}, unit="reqps", width=6),
    lines("Credentials, by decision", "Many `invalid_token`, `key_revoked` and `throttled` mean that a client uses an old key or someone "
          "guesses keys. `unavailable`: no connection to PostgreSQL was free in time.",
          {"{{decision}}": rate("assay_auth_decisions_total", by="decision")}, unit="reqps", width=6,
          alerts=["AssayAuthenticationsFailing"]),
    lines("Quotas, by limit", "Submissions and upload parts checked against a quota, per second.",
          {"{{limit}} {{decision}}": rate("assay_quota_decisions_total", by="limit, decision")}, unit="reqps", width=6),
    lines("Fallback counters", "1 for each API process that counts in memory because Redis is unavailable or rejects writes (circuit "
          "breaker open). Each process then grants its share.",
          {"{{instance}}": f"max by (instance) ({series('assay_ratelimit_degraded')}) or on () vector(0)"},
          width=6, alerts=["AssayRedisDown"]),
]

QUEUE = [
    lines("Jobs by state", "Read from PostgreSQL. If `queued` rises while `running` is constant, there are too few workers.",
          {"{{state}}": per_installation("assay_jobs", by="state")}, alerts=["AssayQueueStalled"]),
    lines("Oldest job by state", "Clients see the wait of the oldest queued job. The oldest running job must stay below fifteen minutes.",
          {"{{state}}": f"max by (state) ({series('assay_job_oldest_age_seconds')})"}, unit="s", bounds=(300, 960),
          alerts=["AssayQueueWaitLong", "AssayJobsOverdue"]),
    lines("Submitted and finished jobs", "Jobs per second. The queue grows while more are submitted than finished.",
          {"submitted": rate("assay_jobs_submitted_total"), "finished": rate("assay_jobs_finished_total")}),
    lines("Wait before an attempt", "From acceptance, or the end of the last attempt, to the claim. Before a retry a job waits 1, 8 or "
          "64 s (backoff).", quantiles("assay_job_queue_wait_seconds"), unit="s", alerts=["AssayQueueWaitLong"]),
    lines("Duration of an attempt", "From the claim to the end. It grows with the size of submissions and with the load of the machine.",
          quantiles("assay_job_run_seconds"), unit="s"),
    lines("Duration of a job", "From acceptance to the end, with all attempts: the time that a client waits.",
          quantiles("assay_job_duration_seconds"), unit="s"),
    lines("Attempts by result", "`requeued`: internal error, the job is retried. `lost`: cancelled or reclaimed. `fenced`: the final write "
          "came too late. `not_written`: PostgreSQL did not accept the final write.",
          {"{{result}}": rate("assay_job_attempts_total", by="result")}, stacked=True, alerts=["AssayQueueStalled"]),
    lines("Finished jobs by outcome", "The platform causes `internal`, `timeout` and `input_unavailable`.",
          {"{{outcome}}": rate("assay_jobs_finished_total", by="outcome")}, stacked=True, alerts=["AssayJobsFailing"]),
    lines("Job notifications", "Notifications per second. Many `repeated`: workers miss notifications, or Redis lost them. Workers "
          "then find jobs a second later, by polling.",
          {"{{kind}}": rate("assay_job_notifications_total", by="kind")}, alerts=["AssayRedisDown"]),
]

WORKERS = [
    lines("Workers", "Workers with a lease, read from PostgreSQL, and scraped workers. If they differ for long, a worker is not scraped or "
          "cannot renew its lease.",
          {"with a lease": per_installation("assay_workers"), "scraped": f"count({series('assay_build_info', WORKER)}) or vector(0)"},
          alerts=["AssayWorkersAbsent"]),
    lines("Slots", "Slots of all workers, by state.", {"{{state}}": f"sum by (state) ({series('assay_worker_slots')})"}, stacked=True,
          alerts=["AssayWorkersSaturated"]),
    lines("Busy share", "Share of busy slots, by worker. A worker that stays at 0 while others are full does not claim jobs.",
          {"{{instance}}": f"sum by (instance) ({series('assay_worker_slots', BUSY)})"
                           f" / clamp_min(sum by (instance) ({series('assay_worker_slots')}), 1)"},
          unit="percentunit", bounds=(0.95,), alerts=["AssayWorkersSaturated"]),
    lines("Predictions scored", "Predictions per second, by worker. One core scores hundreds of thousands.",
          {"{{instance}}": f"sum by (instance) (rate({series('assay_items_scored_total')}[$__rate_interval]))"}, stacked=True),
    lines("Reclaimed jobs, fenced writes", "Jobs reclaimed from dead, unresponsive or overdue workers, and rejected final writes of "
          "attempts that had lost their job (also to a cancellation). A few at a restart are normal.",
          {"reclaimed, {{outcome}}": rate("assay_jobs_reclaimed_total", by="outcome"), "fenced": rate("assay_fenced_writes_total")},
          alerts=["AssayJobsReclaimed"]),
    lines("Memory of answers", "Memory that the answers of suites use in each worker. ASSAY_WORKER_ANSWERS_MIB limits the cache; answers "
          "in use are never evicted, even above it.",
          {"{{instance}}": f"sum by (instance) ({series('assay_worker_answers_bytes')}) or on () vector(0)"}, unit="bytes"),
]

ENGINES = [
    lines("Calls to engines", "Calls per second of the API and the workers, by outcome. `saturated`: no permit was free. `circuit_open`: "
          "refused because of earlier failures.",
          {"{{engine}} {{outcome}}": rate("assay_engine_client_calls_total", by="engine, outcome")},
          alerts=["AssayEngineDown", "AssayEngineSaturated"]),
    lines("Failed and refused calls", "Share of the calls of each engine. Failed: it does not respond, returns an error, or its results are invalid. "
          "Refused: it has too many calls.",
          {"{{engine}} failed": share_of_engine_calls(ENGINE_FAILED), "{{engine}} refused": share_of_engine_calls(ENGINE_REFUSED)},
          unit="percentunit", bounds=(0.01, 0.5), alerts=["AssayEngineDown", "AssayEngineSaturated"]),
    lines("Time of calls to engines", "Time of a call, up to the result or the failure.",
          quantiles("assay_engine_client_call_duration_seconds", by="engine"), unit="s"),
    lines("Calls in flight, open circuits", "Operations in progress, of all processes, and processes that refuse calls because of earlier "
          "failures.",
          {"{{engine}} in flight": f"sum by (engine) ({series('assay_engine_client_calls_in_flight')})",
           "{{engine}} open": f"sum by (engine) ({series('assay_engine_client_circuit_open')})"}, alerts=["AssayEngineDown"]),
    lines("Embedded engines", "Processes of the embedded engine that can be scraped.",
          {"engines": f"count({series('assay_build_info', ENGINE)}) or vector(0)"}, alerts=["AssayEngineDown"]),
    lines("Permits of embedded engines", "Sequences that each engine has accepted and not finished, those of them that wait for a thread, "
          "and the maximum, above which the engine refuses calls. An HPA can scale by the permits used.",
          {"{{instance}} used": per_instance("assay_engine_permits_used"), "{{instance}} waiting": per_instance("assay_engine_queue"),
           "{{instance}} maximum": per_instance("assay_engine_permits")}, alerts=["AssayEngineSaturated"]),
    lines("Wait for a thread", "From the acceptance of a sequence to the start of its computation.",
          quantiles("assay_engine_queue_wait_seconds"), unit="s", alerts=["AssayEngineSaturated"]),
    lines("Time of a sequence", "Computation of one sequence on one core, by operation. It grows with the model and the sequence.",
          quantiles("assay_engine_sequence_seconds", by="operation"), unit="s"),
    lines("Calls of embedded engines", "Calls per second, by outcome. `invalid_package`, `not_found` and `internal` concern single models; "
          "the log has the cause. `unavailable`: the artifact store does not respond.",
          {"{{outcome}}": rate("assay_engine_calls_total", by="outcome")}, stacked=True, alerts=["AssayEngineSaturated"]),
    lines("Memory of packages", "Memory of the loaded packages in each engine, up to ASSAY_ENGINE_MEMORY. The least recently used ones are "
          "unloaded first.", {"{{instance}}": per_instance("assay_engine_packages_bytes")}, unit="bytes"),
    lines("Packages", "Loaded packages in each engine.", {"{{instance}}": per_instance("assay_engine_packages")}),
    lines("Loads of packages", "Packages loaded and unloaded, per second. Many of both mean that the packages in use do not fit into "
          "ASSAY_ENGINE_MEMORY.",
          {"{{outcome}}": rate("assay_engine_package_loads_total", by="outcome"),
           "unloaded": rate("assay_engine_packages_unloaded_total")}),
]

WEBHOOKS = [
    lines("Attempts by outcome", "Attempts to deliver an event to a webhook, per second. Receivers cause `status` and `address`. Many `dns`, "
          "`connect`, `tls` and `timeout` mean that the installation cannot reach the internet, or that many receivers are down.",
          {"{{outcome}}": rate("assay_webhook_attempts_total", by="outcome")}, stacked=True,
          alerts=["AssayWebhookAttemptsFailing"]),
    lines("Duration of an attempt to deliver", "From the resolution of the receiver's name to the response or the failure, at most 15 s.",
          quantiles("assay_webhook_attempt_duration_seconds"), unit="s",
          alerts=["AssayWebhookDeliveriesLate", "AssayWebhookAttemptsFailing"]),
    lines("Delay of deliveries", "Time for which the most delayed delivery has been due; 0 if none is due. All processes that deliver report "
          "the same figure, read from PostgreSQL.",
          {"delay": f"max({series('assay_webhook_delivery_delay_seconds')}) or vector(0)"}, unit="s", bounds=(60, 300),
          alerts=["AssayWebhookDeliveriesLate"]),
    lines("Deliverers", "Processes of the deliverer that can be scraped. With none, the API delivers itself if it exports the delay.",
          {"deliverers": f"count({series('assay_build_info', DELIVERER)}) or vector(0)"}, width=12, alerts=["AssayDelivererAbsent"]),
    lines("Disabled webhooks", "Webhooks that the platform has disabled, per second. `gone`: the receiver responded with 410. `failing`: no "
          "delivery succeeded for five days. Many at once follow a long outage of the installation's connection to the internet.",
          {"{{reason}}": rate("assay_webhooks_disabled_total", by="reason")}, width=12, alerts=["AssayWebhookAttemptsFailing"]),
]

RECEIPTS = [
    lines("Waiting entries", "Receipts and other statements that are not signed, or that are not in the transparency log. All processes that "
          "can sign report the same figure, read from PostgreSQL.",
          {"waiting": f"{per_installation('assay_log_waiting_entries')} or vector(0)"}, alerts=["AssayReceiptLogLate"]),
    lines("Oldest waiting entry", "Time for which the oldest statement has waited until it is in the log; 0 if none waits. Normally less than "
          "20 s.",
          {"wait": f"max({series('assay_log_oldest_waiting_seconds')}) or vector(0)"}, unit="s", bounds=(20, 60),
          alerts=["AssayReceiptLogLate"]),
    lines("Age of the checkpoint", "Time since the last checkpoint was published. It grows while there are no new entries. If it grows while "
          "entries wait, the artifact store may be unavailable.",
          {"age": f"max({series('assay_log_checkpoint_age_seconds')}) or vector(0)"}, unit="s", alerts=["AssayReceiptLogLate"]),
    lines("Size of the log", "Entries of the transparency log. It never shrinks.",
          {"entries": f"{per_installation('assay_log_entries')} or vector(0)"}, alerts=["AssayReceiptLogLate"]),
    lines("Leader", "1 for the process that signs and writes, and the processes of the receipt log that can be scraped. With none, an API "
          "process signs if it leads.",
          {"{{instance}}": per_instance("assay_log_leader"),
           "receipt logs": f"count({series('assay_build_info', RECEIPT_LOG)}) or vector(0)"}, alerts=["AssayReceiptLogLeaderless"]),
    lines("Refuses to sign", "1 while a process refuses to sign because the database lacks entries of the published checkpoint.",
          {"{{instance}}": per_instance("assay_log_refused")}, bounds=(1,), alerts=["AssayReceiptLogRefused"]),
]

SATURATION = [
    lines("Connections in use, by pool", "The busiest process of each pool, as a share of the pool's maximum. At 100% requests get "
          "503.",
          {"{{pool}}": f"max by (pool) ({series('assay_database_connections', BUSY)}"
                       f" / ignoring (state) ({series('assay_database_connections_max')} > 0))"},
          unit="percentunit", bounds=(0.9,), alerts=["AssayDatabaseConnectionsSaturated"]),
    lines("Connections to PostgreSQL", "Of all processes. `max_connections` of the server must exceed the maximum.",
          {"{{pool}} {{state}}": f"sum by (pool, state) ({series('assay_database_connections')})",
           "maximum": f"sum({series('assay_database_connections_max')})"}, alerts=["AssayDatabaseConnectionsSaturated"]),
    lines("PostgreSQL, Redis, schema", "The worst value of all processes: 1 while PostgreSQL or Redis responds. Pending migrations must "
          "be 0.",
          {"PostgreSQL responds": f"min({series('assay_database_up')})", "Redis responds": f"min({series('assay_redis_up')})",
           "migrations pending": f"max({series('assay_migrations_pending')})"},
          alerts=["AssayDatabaseDown", "AssayRedisDown", "AssayMigrationsPending"]),
    lines("CPU", "Cores in use, by process.",
          {"{{binary}} {{instance}}": f"rate({series('process_cpu_seconds_total')}[$__rate_interval]) {OWN_PROCESSES}"}),
    lines("Memory", "Resident memory, by process. A worker holds the answers of suites and buffers for the jobs that it scores.",
          {"{{binary}} {{instance}}": f"{series('process_resident_memory_bytes')} {OWN_PROCESSES}"}, unit="bytes"),
    lines("File descriptors", "Open file descriptors as a share of the limit, by process. Each connection uses one.",
          {"{{binary}} {{instance}}": f"{series('process_open_fds')} / ({series('process_max_fds')} > 0) {OWN_PROCESSES}"},
          unit="percentunit", bounds=(0.7,), alerts=["AssayFileDescriptorsNearLimit"]),
    lines("Tasks", "Running tasks, by process. A continuous rise with steady traffic is a leak.",
          {"{{instance}}": f"sum by (instance) ({series('assay_runtime_tasks')})"}, width=6),
    lines("Lag", "Delay of timers, by process. Many milliseconds for long mean that the process has too few cores.",
          {"{{instance}}": f"max by (instance) ({series('assay_runtime_lag_seconds')})"}, unit="s", width=6),
    lines("Threads", "Threads, by process. Scoring and decompression use one each.",
          {"{{binary}} {{instance}}": f"{series('process_threads')} {OWN_PROCESSES}"}, width=6),
    lines("Uptime", "Uptime, by process. A line that repeatedly drops to 0 is a process that crashes.",
          {"{{binary}} {{instance}}": f"(time() - {series('process_start_time_seconds')}) {OWN_PROCESSES}"}, unit="s", width=6),
]

UPLOADS = [
    lines("Bytes of upload parts", "Bytes received per second.", {"received": rate("assay_upload_bytes_total")}, unit="Bps"),
    lines("Completed uploads", "Uploads per second. `failed`: validation found errors, which the response reports by line.",
          {"{{outcome}}": rate("assay_uploads_completed_total", by="outcome")}),
    lines("Emails", "Emails per second. `failed`: four attempts failed, or the server rejected it for good. `dropped`: a thousand were "
          "queued already.",
          {"{{outcome}}": rate("assay_mails_total", by="outcome")}, alerts=["AssayMailsFailing"]),
]

ROWS = [
    ("Overview", OVERVIEW),
    ("Requests", REQUESTS),
    ("Limits and quotas", LIMITS),
    ("Queue", QUEUE),
    ("Workers", WORKERS),
    ("Engines", ENGINES),
    ("Webhooks", WEBHOOKS),
    ("Receipts", RECEIPTS),
    ("Saturation", SATURATION),
    ("Uploads and emails", UPLOADS),
]
