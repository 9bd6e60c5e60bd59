"""The panels of the dashboard, row by row, and what each of them asks Prometheus.

A panel's queries are legend: expression. Where a series may not exist because nothing has happened yet, the expression says
0 by itself; only of times there are none before the first request or job. Figures that every api takes from PostgreSQL are
never added up over processes.
"""

CHOSEN = 'namespace=~"$namespace",instance=~"$instance"'
# Operations that take long on purpose or at somebody else's; the alert AssayRequestsSlow leaves out the same.
LONG = (
    "unknown|GET /v1/jobs/{job_id}|assay.v1.JobService/GetJob|assay.v1.JobService/WatchJob|PUT /v1/uploads/{upload_id}/parts/{number}"
    "|POST /v1/uploads/{upload_id}/complete|assay.v1.UploadService/UploadPredictions|assay.v1.UploadService/CompleteUpload"
    "|POST /v1/comparisons|assay.v1.ComparisonService/CreateComparison"
    "|POST /v1/domains/{domain}/verify|assay.v1.DomainService/VerifyDomain"
)
NOT_PROBES = 'operation!~"unknown|GET /health|assay.v1.HealthService/GetHealth"'
OURS = 'outcome=~"internal|timeout|input_unavailable"'
FAULT = 'outcome="server_error"'
MOMENTS = f'operation!~"{LONG}"'
HALF_A_SECOND = f'le="0.5",{MOMENTS}'
OPERATION = 'operation=~"$operation"'
API, WORKER = 'binary="assay-api"', 'binary="assay-worker"'
WAITING, BUSY = 'state="queued"', 'state="busy"'
# The standard figures are kept of any process; those beside a build of ours are meant.
OWN = "* on (namespace, job, instance) group_left (binary) max by (namespace, job, instance, binary) (assay_build_info)"


def of(metric, labels=""):
    """The chosen series of a metric."""
    return f"{metric}{{{labels + ',' if labels else ''}{CHOSEN}}}"


def rate(metric, labels="", by=""):
    """How many a second; 0 where there was none yet."""
    if not by:
        return f"sum(rate({of(metric, labels)}[$__rate_interval])) or vector(0)"
    first = by.split(", ")[0]
    return f'sum by ({by}) (rate({of(metric, labels)}[$__rate_interval])) or on () label_replace(vector(0), "{first}", "none", "", "")'


def told(metric, labels="", by=""):
    """What every api tells of an installation, once for each."""
    return f"sum by ({by}) (max by (namespace{', ' + by if by else ''}) ({of(metric, labels)}))"


def quantiles(metric, labels="", by=""):
    """The median, and what 5 and 1 of 100 are above of."""
    le = f"le, {by}" if by else "le"
    series = f"sum by ({le}) (rate({of(metric + '_bucket', labels)}[$__rate_interval]))"
    legend = f" {{{{{by}}}}}" if by else ""
    return {f"p{share:g}{legend}": f"histogram_quantile({share / 100:g}, {series})" for share in (50, 95, 99)}


def panel(kind, title, description, queries, unit="short", width=8, bounds=(), alerts=(), stacked=False, names=False):
    """A panel. The first of `bounds` is negative where less is worse."""
    return locals()


def stat(title, description, query, **more):
    """A figure."""
    queries = query if isinstance(query, dict) else {"": query}
    return panel("stat", title, description, queries, **({"width": 4} | more))


def lines(title, description, queries, **more):
    """Lines over time."""
    return panel("timeseries", title, description, queries, **more)


OVERVIEW = [
    stat("Alerts", "Alerts of this dashboard's rules that fire now. Each has a page that says what to do.",
         'count(ALERTS{alertname=~"Assay.*",alertstate="firing",namespace=~"$namespace"}) or vector(0)', bounds=(1,)),
    stat("Api processes", "Processes of assay-api that can be scraped. Below two, a restart is an outage.",
         f"count({of('assay_build_info', API)}) or vector(0)", bounds=(-1, 2), alerts=["AssayApiAbsent"]),
    stat("Workers with a lease", "Workers that renewed their lease in the last ten seconds, as PostgreSQL has it. At 0 nothing is scored.",
         told("assay_workers"), bounds=(-1, 2), alerts=["AssayWorkersAbsent"]),
    stat("Requests a second", "All requests that were answered, on all wires.", rate("assay_requests_total")),
    stat("Server errors, last hour", "Share of requests that ended by our fault, probes left out. 0.1% are allowed over a month.",
         f"(sum(rate({of('assay_requests_total', NOT_PROBES + ',' + FAULT)}[1h])) or vector(0))"
         f" / clamp_min(sum(rate({of('assay_requests_total', NOT_PROBES)}[1h])) or vector(0), 0.000001)",
         unit="percentunit", bounds=(0.001, 0.006), alerts=["AssayErrorBudgetBurnFast", "AssayErrorBudgetBurnSlow"]),
    stat("Slower than 0.5 s", "Share of requests, without those that take long on purpose. Above 5% look for the operation below.",
         f"(sum(rate({of('assay_request_duration_seconds_count', MOMENTS)}[10m]))"
         f" - sum(rate({of('assay_request_duration_seconds_bucket', HALF_A_SECOND)}[10m])))"
         f" / clamp_min(sum(rate({of('assay_request_duration_seconds_count', MOMENTS)}[10m])), 0.000001) or vector(0)",
         unit="percentunit", bounds=(0.01, 0.05), alerts=["AssayRequestsSlow"]),
    stat("Jobs that have not ended", "Waiting and running, as PostgreSQL has it.", {"{{state}}": told("assay_jobs", by="state")}),
    stat("Oldest job that waits", "How long the job at the head of the queue has waited. At rest it is milliseconds.",
         f"max({of('assay_job_oldest_age_seconds', WAITING)})", unit="s", bounds=(60, 300),
         alerts=["AssayQueueWaitLong", "AssayQueueStalled"]),
    stat("Slots in use", "Share of all workers' slots that are busy. Near 100% with jobs waiting, add workers.",
         f"sum({of('assay_worker_slots', BUSY)}) / clamp_min(sum({of('assay_worker_slots')}), 1) or vector(0)",
         unit="percentunit", bounds=(0.8, 0.95), alerts=["AssayWorkersSaturated"]),
    stat("Jobs failed by us, last day", "Ended as internal, timeout or input_unavailable. Any is worth a look into the log.",
         f"sum(increase({of('assay_jobs_finished_total', OURS)}[1d])) or vector(0)", bounds=(1, 10), alerts=["AssayJobsFailing"]),
    stat("Processes without …", "Processes that PostgreSQL or Redis did not answer when they last asked. Without PostgreSQL nothing "
         "works; without Redis everything does, less exactly.",
         {"PostgreSQL": f"count({of('assay_database_up')} == 0) or vector(0)", "Redis": f"count({of('assay_redis_up')} == 0) or vector(0)"},
         bounds=(1,), alerts=["AssayDatabaseDown", "AssayRedisDown"]),
    stat("Builds", "Which builds run. More than one of a binary, for longer than a deployment takes, is a deployment that hangs.",
         {"{{binary}} {{version}} {{git_sha}}": f"count by (binary, version, git_sha) ({of('assay_build_info')})"}, names=True),
]

REQUESTS = [
    lines("Requests by wire", "Requests answered a second. A wire that falls to nothing while others go on is a proxy's doing.",
          {"{{wire}}": rate("assay_requests_total", by="wire")}, unit="reqps", stacked=True),
    lines("Requests by outcome", "Client errors rise with a caller's mistake, server errors with ours.",
          {"{{outcome}}": rate("assay_requests_total", by="outcome")}, unit="reqps", stacked=True),
    lines("In flight", "Requests that are being answered, by process. Those who wait for jobs are among them; a steady rise without more "
          "requests is something that hangs.", {"{{instance}}": f"sum by (instance) ({of('assay_requests_in_flight')})"}),
    lines("Errors by code", "Answers with an error, by the contract's code. `internal` is a bug, with its cause in the log; `unavailable` "
          "is too little of something.", {"{{code}}": rate("assay_request_errors_total", by="code")}, unit="reqps",
          alerts=["AssayErrorBudgetBurnFast", "AssayErrorBudgetBurnSlow"]),
    lines("Server errors by operation", "The ten operations with the most faults of ours.",
          {"{{operation}}": f"topk(10, {rate('assay_requests_total', FAULT, by='operation')})"}, unit="reqps",
          alerts=["AssayErrorBudgetBurnFast", "AssayErrorBudgetBurnSlow"]),
    lines("Share of server errors", "Of all requests, probes left out. The line is what is allowed over a month.",
          {"errors": f"({rate('assay_requests_total', NOT_PROBES + ',' + FAULT)})"
                     f" / clamp_min({rate('assay_requests_total', NOT_PROBES)}, 0.000001)"},
          unit="percentunit", bounds=(0.001,), alerts=["AssayErrorBudgetBurnFast", "AssayErrorBudgetBurnSlow"]),
    lines("Latency of the chosen operations", "By wire, from a request's head to its answer's head. With all operations chosen, those who "
          "wait for jobs on purpose are among them.", quantiles("assay_request_duration_seconds", OPERATION, by="wire"),
          unit="s"),
    lines("p95 of the slowest operations", "The ten slowest, without those that take long on purpose.",
          {"{{operation}} {{wire}}": "topk(10, histogram_quantile(0.95, sum by (le, operation, wire) "
           f"(rate({of('assay_request_duration_seconds_bucket', MOMENTS)}[$__rate_interval]))))"},
          unit="s", bounds=(0.5,), alerts=["AssayRequestsSlow"]),
    panel("heatmap", "Latency of the chosen operations, by bucket", "Requests a second in each bucket. Two bands are two kinds of "
          "requests; one that moves up is one that got slower.",
          {"{{le}}": f"sum by (le) (rate({of('assay_request_duration_seconds_bucket', OPERATION)}[$__rate_interval]))"},
          unit="s"),
]

LIMITS = [
    lines("Requests a minute, by plan", "Decisions a second. `refused`: a customer needs a larger plan, or slower loops; `crowded`: one "
          "organization had too many under way at once, and was answered 503.",
          {"{{plan}} {{decision}}": rate("assay_ratelimit_decisions_total", by="plan, decision")}, unit="reqps", width=6),
    lines("Credentials, by decision", "`invalid_token`, `key_revoked` and `throttled` in numbers are a program with an old key, or "
          "somebody who guesses; `unavailable`: PostgreSQL had no connection in time.",
          {"{{decision}}": rate("assay_auth_decisions_total", by="decision")}, unit="reqps", width=6,
          alerts=["AssayAuthenticationsFailing"]),
    lines("Quotas, by limit", "Submissions held against a quota, a second.",
          {"{{limit}} {{decision}}": rate("assay_quota_decisions_total", by="limit, decision")}, unit="reqps", width=6),
    lines("Limits counted in memory", "1 for each API process that counts in memory because Redis does not reply or cannot be written. Then "
          "each grants its share.", {"{{instance}}": f"max by (instance) ({of('assay_ratelimit_degraded')}) or on () vector(0)"},
          width=6, alerts=["AssayRedisDown"]),
]

QUEUE = [
    lines("Jobs by state", "As PostgreSQL has it. `queued` that rises while `running` stands is too few workers.",
          {"{{state}}": told("assay_jobs", by="state")}, alerts=["AssayQueueStalled"]),
    lines("Oldest job by state", "The oldest that waits is what a caller sees; the oldest that runs must stay below fifteen minutes.",
          {"{{state}}": f"max by (state) ({of('assay_job_oldest_age_seconds')})"}, unit="s", bounds=(300, 960),
          alerts=["AssayQueueWaitLong", "AssayJobsOverdue"]),
    lines("Submitted and ended", "Jobs a second. Where the first is above the second for long, the queue grows.",
          {"submitted": rate("assay_jobs_submitted_total"), "ended": rate("assay_jobs_finished_total")}),
    lines("Wait before an attempt", "From acceptance, or the last attempt's end, to a claim. A try after a failed one waits 1, 8 or 64 s "
          "on purpose.", quantiles("assay_job_queue_wait_seconds"), unit="s", alerts=["AssayQueueWaitLong"]),
    lines("Run of an attempt", "From the claim to the end. It grows with the size of submissions, and with a busy machine.",
          quantiles("assay_job_run_seconds"), unit="s"),
    lines("Whole job", "From acceptance to the end, all tries together: what a caller waits.", quantiles("assay_job_duration_seconds"),
          unit="s"),
    lines("Attempts by result", "`released`: a fault of ours, it is tried again; `lost`: cancelled or taken back; `fenced`: the end came "
          "too late; `not_written`: PostgreSQL did not take the end.",
          {"{{result}}": rate("assay_job_attempts_total", by="result")}, stacked=True, alerts=["AssayQueueStalled"]),
    lines("Ended jobs by outcome", "`internal`, `timeout` and `input_unavailable` are ours to explain.",
          {"{{outcome}}": rate("assay_jobs_finished_total", by="outcome")}, stacked=True, alerts=["AssayJobsFailing"]),
    lines("Bells", "Rung a second. `again` in numbers: workers do not hear, or Redis forgot; then jobs are found a second later.",
          {"{{kind}}": rate("assay_bells_rung_total", by="kind")}, alerts=["AssayRedisDown"]),
]

WORKERS = [
    lines("Workers", "With a lease, as PostgreSQL has it, and scraped. That they differ for long is a worker that nobody watches, or one "
          "that cannot renew its lease.",
          {"with a lease": told("assay_workers"), "scraped": f"count({of('assay_build_info', WORKER)}) or vector(0)"},
          alerts=["AssayWorkersAbsent"]),
    lines("Slots", "Of all workers, by state.", {"{{state}}": f"sum by (state) ({of('assay_worker_slots')})"}, stacked=True,
          alerts=["AssayWorkersSaturated"]),
    lines("Busy share", "Of each worker's slots. One that stays at 0 while others are full does not claim.",
          {"{{instance}}": f"sum by (instance) ({of('assay_worker_slots', BUSY)})"
                           f" / clamp_min(sum by (instance) ({of('assay_worker_slots')}), 1)"},
          unit="percentunit", bounds=(0.95,), alerts=["AssayWorkersSaturated"]),
    lines("Predictions scored", "A second, by worker. One core scores hundreds of thousands.",
          {"{{instance}}": f"sum by (instance) (rate({of('assay_items_scored_total')}[$__rate_interval]))"}, stacked=True),
    lines("Jobs taken back, writes refused", "Taken back from dead, silent or overdue workers; and ends that came after that, each "
          "refused. A few with a restart are what leases are for; also a cancelled job's end is refused.",
          {"taken back, {{outcome}}": rate("assay_jobs_taken_back_total", by="outcome"), "refused": rate("assay_fenced_writes_total")},
          alerts=["AssayJobsTakenBack"]),
    lines("Memory of answers", "What the answers of suites take in each worker. ASSAY_WORKER_ANSWERS_MIB bounds what is kept; what is in "
          "use comes on top.", {"{{instance}}": f"sum by (instance) ({of('assay_worker_answers_bytes')}) or on () vector(0)"}, unit="bytes"),
]

SATURATION = [
    lines("Connections in use, by pool", "The fullest process of each pool, as a share of what it may have. At 100% requests are "
          "answered 503.",
          {"{{pool}}": f"max by (pool) ({of('assay_database_connections', BUSY)}"
                       f" / ignoring (state) ({of('assay_database_connections_max')} > 0))"},
          unit="percentunit", bounds=(0.9,), alerts=["AssayDatabaseConnectionsSaturated"]),
    lines("Connections to PostgreSQL", "Of all processes together; max_connections of the server must be above the last.",
          {"{{pool}} {{state}}": f"sum by (pool, state) ({of('assay_database_connections')})",
           "most there can be": f"sum({of('assay_database_connections_max')})"}, alerts=["AssayDatabaseConnectionsSaturated"]),
    lines("PostgreSQL, Redis, schema", "The worst of all processes: 1 while each answers; and migrations that a build misses, which must "
          "be 0.",
          {"PostgreSQL answers": f"min({of('assay_database_up')})", "Redis answers": f"min({of('assay_redis_up')})",
           "migrations pending": f"max({of('assay_migrations_pending')})"},
          alerts=["AssayDatabaseDown", "AssayRedisDown", "AssayMigrationsPending"]),
    lines("CPU", "Cores in use by each process.",
          {"{{binary}} {{instance}}": f"rate({of('process_cpu_seconds_total')}[$__rate_interval]) {OWN}"}),
    lines("Memory", "Resident memory of each process. A worker holds the answers of suites, and a share for what it scores.",
          {"{{binary}} {{instance}}": f"{of('process_resident_memory_bytes')} {OWN}"}, unit="bytes"),
    lines("File descriptors", "Share of what each process may open; connections take one each.",
          {"{{binary}} {{instance}}": f"{of('process_open_fds')} / ({of('process_max_fds')} > 0) {OWN}"}, unit="percentunit", bounds=(0.7,),
          alerts=["AssayFileDescriptorsNearLimit"]),
    lines("Tasks", "Tasks of each process that have not ended. A rise without an end, with steady traffic, is a leak.",
          {"{{instance}}": f"sum by (instance) ({of('assay_runtime_tasks')})"}, width=6),
    lines("Lag", "How late a task was woken that had asked for it. Many milliseconds, for long: too few cores for what the process does.",
          {"{{instance}}": f"max by (instance) ({of('assay_runtime_lag_seconds')})"}, unit="s", width=6),
    lines("Threads", "Of each process. Scoring and decompressing take one each while they last.",
          {"{{binary}} {{instance}}": f"{of('process_threads')} {OWN}"}, width=6),
    lines("Up since", "Age of each process. A line that falls again and again is one that dies.",
          {"{{binary}} {{instance}}": f"(time() - {of('process_start_time_seconds')}) {OWN}"}, unit="s", width=6),
]

UPLOADS = [
    lines("Bytes of parts", "Received a second.", {"received": rate("assay_upload_bytes_total")}, unit="Bps"),
    lines("Uploads read through", "A second. `failed`: their content did not hold, and the caller was told by line.",
          {"{{outcome}}": rate("assay_uploads_completed_total", by="outcome")}),
    lines("Mails", "A second. `failed`: given up after four tries, or refused for good; `dropped`: a thousand waited already.",
          {"{{outcome}}": rate("assay_mails_total", by="outcome")}, alerts=["AssayMailsFailing"]),
]

ROWS = [
    ("Overview", OVERVIEW),
    ("Requests", REQUESTS),
    ("Limits and quotas", LIMITS),
    ("Queue", QUEUE),
    ("Workers", WORKERS),
    ("Saturation", SATURATION),
    ("Uploads and mails", UPLOADS),
]
