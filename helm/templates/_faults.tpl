{{/*
Checks for values that contradict each other. Each error is one line: the value, the problem, the fix. validate.yaml reports all
errors at once. values.schema.json checks single values.
*/}}
{{- define "assay.faults" -}}
{{- include "assay.faults.stores" . }}
{{- include "assay.faults.ways" . }}
{{- include "assay.faults.proxies" . }}
{{- include "assay.faults.monitoring" . }}
{{- include "assay.faults.engines" . }}
{{- include "assay.faults.deliverer" . }}
{{- include "assay.faults.receiptLog" . }}
{{- include "assay.faults.checker" . }}
{{- $components := include "assay.components" . | fromYamlArray }}
{{- range $component := $components }}
{{- include "assay.faults.scale" (dict "root" $ "component" $component "own" (index $.Values $component)) }}
{{- end }}
{{- include "assay.faults.process" . }}
{{- range $component := append $components "migration" }}
{{- include "assay.faults.extras" (dict "root" $ "component" $component "own" (index $.Values $component)) }}
{{- end }}
{{- end }}

{{/* Databases, Redis, artifacts, mail, certificates. */}}
{{- define "assay.faults.stores" -}}
{{- with .Values.database }}
{{- if not .api.existingSecret }}
database.api.existingSecret: is required: a Secret with the address of PostgreSQL for a login role in assay_api
{{- end }}
{{- if not .worker.existingSecret }}
database.worker.existingSecret: is required: a Secret with the address of PostgreSQL for a login role in assay_worker
{{- end }}
{{- if and (not .owner.existingSecret) (ne $.Values.migration.mode "none") }}
database.owner.existingSecret: is required if migration.mode is {{ $.Values.migration.mode }}: a Secret with the address for the owner of the schema; or set migration.mode to none and run assay-api migrate yourself
{{- end }}
{{- $api := printf "%s/%s" .api.existingSecret .api.key }}
{{- $worker := printf "%s/%s" .worker.existingSecret .worker.key }}
{{- $owner := printf "%s/%s" .owner.existingSecret .owner.key }}
{{- if or (eq $api $worker) (eq $api $owner) (eq $worker $owner) }}
database: api, worker and owner must not share an address: each needs its own role, and the API does not start with a role that can read answers; give each its own Secret or key
{{- end }}
{{- end }}
{{- if not .Values.redis.existingSecret }}
redis.existingSecret: is required: a Secret with the address of Redis
{{- end }}
{{- with .Values.artifacts }}
{{- if eq .type "s3" }}
{{- if not .s3.bucket }}
artifacts.s3.bucket: is required if artifacts.type is s3
{{- end }}
{{- if and (hasPrefix "http://" .s3.endpoint) (not .s3.allowHttp) }}
artifacts.s3.endpoint: uses no TLS; set artifacts.s3.allowHttp to true if that is intended
{{- end }}
{{- else if not (or .folder.existingClaim .folder.create) }}
artifacts.folder: all pods must mount the same volume; set existingClaim, set create to true, or set artifacts.type to s3
{{- end }}
{{- $one := not (has "ReadWriteMany" .folder.accessModes) }}
{{- $more := or (gt (int $.Values.api.replicas) 1) (gt (int $.Values.worker.replicas) 1) $.Values.api.autoscaling.enabled $.Values.worker.autoscaling.enabled $.Values.worker.keda.enabled (and $.Values.engine.enabled (or (gt (int $.Values.engine.replicas) 1) $.Values.engine.autoscaling.enabled)) (and $.Values.receiptLog.enabled (gt (int $.Values.receiptLog.replicas) 1)) }}
{{- if and (eq .type "folder") .folder.create (not .folder.existingClaim) $one $more }}
artifacts.folder.accessModes: several pods of one component need ReadWriteMany; add it, set one replica each without autoscaling, or set artifacts.type to s3
{{- end }}
{{- if and (eq .type "s3") .s3.existingSecret (eq .s3.existingSecret .s3.engineExistingSecret) }}
artifacts.s3.engineExistingSecret: is the same as existingSecret; name a Secret with access keys that can only read, or leave it empty
{{- end }}
{{- end }}
{{- with .Values.mail }}
{{- if and .existingSecret (not .from) }}
mail.from: is required with mail.existingSecret, such as Assay <assay@example.org>
{{- end }}
{{- if and .from (not .existingSecret) }}
mail.existingSecret: is required with mail.from: a Secret with the address of the mail server
{{- end }}
{{- end }}
{{- if and .Values.ca.configMap .Values.ca.secret }}
ca: set either configMap or secret, not both
{{- end }}
{{- with .Values.config.terms }}
{{- if ne (empty .version) (empty .url) }}
config.terms: set both version and url, or neither
{{- end }}
{{- end }}
{{- end }}

{{/* Entry points: Service, gateway, ingress. */}}
{{- define "assay.faults.ways" -}}
{{- with .Values.service }}
{{- if eq (int .httpPort) (int .grpcPort) }}
service: httpPort and grpcPort must differ, because proxies choose the protocol by the port
{{- end }}
{{- if and (ne .type "ClusterIP") (not $.Values.config.publicUrl) (not $.Values.gateway.enabled) (not $.Values.ingress.enabled) }}
config.publicUrl: is required if clients use a Service of type {{ .type }}: links in responses and emails start with it
{{- end }}
{{- if and .loadBalancerSourceRanges (ne .type "LoadBalancer") }}
service.loadBalancerSourceRanges: applies to the type LoadBalancer only
{{- end }}
{{- if and .externalTrafficPolicy (eq .type "ClusterIP") }}
service.externalTrafficPolicy: applies to the types NodePort and LoadBalancer only
{{- end }}
{{- end }}
{{- with .Values.gateway }}
{{- if .enabled }}
{{- if not .parentRefs }}
gateway.parentRefs: is required: name the Gateway of the routes
{{- end }}
{{- if not .http.hostnames }}
gateway.http.hostnames: is required: a route without host names would receive all requests of the Gateway
{{- end }}
{{- range .grpc.hostnames }}
{{- if has . $.Values.gateway.http.hostnames }}
gateway.grpc.hostnames: {{ . }} is also in gateway.http.hostnames; a Gateway rejects one of two routes of different kinds with the same host name, so give gRPC another one
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.ingress }}
{{- if .enabled }}
{{- if not .http.hosts }}
ingress.http.hosts: is required: an Ingress without host names would receive all requests of the controller
{{- end }}
{{- range .grpc.hosts }}
{{- if has . $.Values.ingress.http.hosts }}
ingress.grpc.hosts: {{ . }} is also in ingress.http.hosts; both Ingresses would claim the path /, so give gRPC another one
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Proxies whose X-Forwarded-For the API trusts, and peers that could forge it. */}}
{{- define "assay.faults.proxies" -}}
{{- $ways := list }}
{{- range $way := list "gateway" "ingress" }}
{{- if (index $.Values $way).enabled }}
{{- $ways = append $ways (printf "%s.enabled" $way) }}
{{- end }}
{{- end }}
{{- with .Values.config.trustedProxies }}
{{- if and $.Values.networkPolicy.enabled (not $.Values.networkPolicy.httpFrom) }}
networkPolicy.httpFrom: is required with config.trustedProxies: any pod in these networks could call the API directly and forge X-Forwarded-For; name the pods of the gateway or ingress, or the [{ipBlock: {cidr: …}}] of a load balancer outside the cluster
{{- end }}
{{- else }}
{{- if $ways }}
config.trustedProxies: is required with {{ join " and " $ways }}: otherwise all clients share the proxy's address, and ten failed sign-ins of one client throttle all; name the networks of the gateway's or ingress's pods
{{- end }}
{{- end }}
{{- end }}

{{- define "assay.faults.monitoring" -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) (or .Values.serviceMonitor.enabled .Values.podMonitor.enabled) }}
networkPolicy.metricsFrom: is required if serviceMonitor or podMonitor is enabled: name the pods of Prometheus, which otherwise cannot reach the private port
{{- end }}
{{- if and .Values.prometheusRule.enabled (not (.Files.Get "files/alerts.yaml")) }}
prometheusRule.enabled: this chart was packed without files/alerts.yaml; set it to false, or use a complete chart
{{- end }}
{{- if and .Values.grafanaDashboard.enabled (not (.Files.Get "files/dashboard.json")) }}
grafanaDashboard.enabled: this chart was packed without files/dashboard.json; set it to false, or use a complete chart
{{- end }}
{{- end }}

{{/* The chart's own engine, and external ones. */}}
{{- define "assay.faults.engines" -}}
{{- with .Values.config.externalEngines }}
{{- if $.Values.engine.enabled }}
{{- if hasKey . "default" }}
config.externalEngines: default is the name of the chart's own engine; choose another name, or set engine.enabled to false
{{- end }}
{{- if gt (len .) 15 }}
config.externalEngines: {{ len . }} engines and the chart's own one are more than 16; remove some, or set engine.enabled to false
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.engine.enabled }}
{{- range .Values.engine.extraEnv }}
{{- if has (trimSuffix "_FILE" .name) (list "ASSAY_DATABASE_URL" "ASSAY_REDIS_URL" "ASSAY_SMTP_URL" "ASSAY_OIDC_ISSUERS") }}
engine.extraEnv: {{ .name }} must not be set, because the engine must have no credential and does not start with one; remove it
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The process that delivers webhooks. */}}
{{- define "assay.faults.deliverer" -}}
{{- if .Values.deliverer.enabled }}
{{- if not .Values.webhooks.existingSecret }}
webhooks.existingSecret: is required with deliverer.enabled: a Secret with the key of the webhooks, such as the output of openssl rand -base64 32
{{- end }}
{{- $why := "the deliverer does not start with a role that can read more than the deliveries" }}
{{- $refused := list "ASSAY_REDIS_URL" "ASSAY_SMTP_URL" "ASSAY_OIDC_ISSUERS" }}
{{- include "assay.faults.credentials" (dict "root" $ "component" "deliverer" "title" "the deliverer" "role" "assay_delivery" "why" $why "refused" $refused) }}
{{- end }}
{{- end }}

{{/* The process that signs receipts and writes the transparency log. */}}
{{- define "assay.faults.receiptLog" -}}
{{- with .Values.receiptLog }}
{{- if .enabled }}
{{- if not .origin }}
receiptLog.origin: is required with receiptLog.enabled: the name of the transparency log, such as assay.example.org/log, which must never change
{{- end }}
{{- if not .receiptKeys.existingSecret }}
receiptLog.receiptKeys.existingSecret: is required with receiptLog.enabled: a Secret with the output of assay-api receipt-key generate
{{- end }}
{{- if not .logKey.existingSecret }}
receiptLog.logKey.existingSecret: is required with receiptLog.enabled: a Secret with the private key that assay-api log keygen prints
{{- end }}
{{- if and .logKey.existingSecret (eq (printf "%s/%s" .logKey.existingSecret .logKey.key) (printf "%s/%s" .receiptKeys.existingSecret .receiptKeys.key)) }}
receiptLog.logKey: is the same as receiptLog.receiptKeys; give each its own Secret or key
{{- end }}
{{- $why := "the receipt log needs a role of its own" }}
{{- $refused := list "ASSAY_REDIS_URL" "ASSAY_SMTP_URL" "ASSAY_OIDC_ISSUERS" "ASSAY_WEBHOOK_KEY" }}
{{- include "assay.faults.credentials" (dict "root" $ "component" "receiptLog" "title" "the receipt log" "role" "assay_log" "why" $why "refused" $refused) }}
{{- end }}
{{- end }}
{{- $own := list "ASSAY_RECEIPT_KEYS" "ASSAY_LOG_KEY" }}
{{- include "assay.faults.exclusive" (dict "root" $ "component" "receiptLog" "title" "the receipt log" "own" $own) }}
{{- end }}

{{/* The process that checks and publishes the drafts of organizations. */}}
{{- define "assay.faults.checker" -}}
{{- if .Values.checker.enabled }}
{{- $why := "the checker does not start with a role that can do more than check drafts" }}
{{- $refused := list "ASSAY_DATABASE_URL" "ASSAY_LOG_DATABASE_URL" "ASSAY_REDIS_URL" "ASSAY_SMTP_URL" "ASSAY_OIDC_ISSUERS" "ASSAY_WEBHOOK_KEY" }}
{{- include "assay.faults.credentials" (dict "root" $ "component" "checker" "title" "the checker" "role" "assay_checker" "why" $why "refused" $refused) }}
{{- end }}
{{- include "assay.faults.exclusive" (dict "root" $ "component" "checker" "title" "the checker" "own" (list "ASSAY_CHECKER_DATABASE_URL")) }}
{{- end }}

{{/* Credentials that only one component has. Takes (dict "root" $ "component" "receiptLog" "title" "the receipt log" "own" (list
"ASSAY_LOG_KEY")). */}}
{{- define "assay.faults.exclusive" -}}
{{- range $other := append (without (include "assay.components" .root | fromYamlArray) .component) "migration" }}
{{- range (index $.root.Values $other).extraEnv }}
{{- if has (trimSuffix "_FILE" .name) $.own }}
{{ $other }}.extraEnv: {{ .name }} must not be set, because only {{ $.title }} has this credential; remove it, and set {{ $.component }}.enabled to true
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The database role of a component, and credentials that it must not have. Takes (dict "root" $ "component" "deliverer" "title" "the
deliverer" "role" "assay_delivery" "why" "reason for a role of its own" "refused" (list "ASSAY_REDIS_URL")). */}}
{{- define "assay.faults.credentials" -}}
{{- $component := .component }}
{{- $database := .root.Values.database }}
{{- $own := index $database $component }}
{{- if not $own.existingSecret }}
database.{{ $component }}.existingSecret: is required with {{ $component }}.enabled: a Secret with the address of PostgreSQL for a login role in {{ .role }}
{{- else }}
{{- range $other := without (list "api" "worker" "deliverer" "receiptLog" "owner") $component }}
{{- with index $database $other }}
{{- if eq (printf "%s/%s" $own.existingSecret $own.key) (printf "%s/%s" .existingSecret .key) }}
database.{{ $component }}: must not share the address of database.{{ $other }}: {{ $.why }}; give it its own Secret or key
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range (index .root.Values $component).extraEnv }}
{{- if has (trimSuffix "_FILE" .name) $.refused }}
{{ $component }}.extraEnv: {{ .name }} must not be set, because {{ $.title }} must not have this credential; remove it
{{- end }}
{{- end }}
{{- end }}

{{/* Number of pods, and the disruption budget. Takes (dict "root" $ "component" "api" "own" .Values.api). */}}
{{- define "assay.faults.scale" -}}
{{- $least := int .own.replicas }}
{{- $component := .component }}
{{- with .own.autoscaling }}
{{- if .enabled }}
{{- $least = int .minReplicas }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{ $component }}.autoscaling: minReplicas is greater than maxReplicas
{{- end }}
{{- if not (or .targetPermitsUsed .targetCPUUtilizationPercentage .targetMemoryUtilizationPercentage .metrics) }}
{{ $component }}.autoscaling: there is no target; set {{ ternary "targetPermitsUsed, " "" (eq $component "engine") }}targetCPUUtilizationPercentage, targetMemoryUtilizationPercentage or metrics
{{- end }}
{{- end }}
{{- end }}
{{- with .own.keda }}
{{- if .enabled }}
{{- $least = int .minReplicas }}
{{- if $.own.autoscaling.enabled }}
worker: autoscaling and keda would both set the number of workers; enable only one of them
{{- end }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
worker.keda: minReplicas is greater than maxReplicas
{{- end }}
{{- if and (eq .trigger "prometheus") (not .prometheus.serverAddress) }}
worker.keda.prometheus.serverAddress: is required, such as http://prometheus-operated.monitoring:9090
{{- end }}
{{- if ne (empty .prometheus.authenticationRef) (empty .prometheus.authModes) }}
worker.keda.prometheus: set both authenticationRef and authModes, or neither
{{- end }}
{{- if and (eq .trigger "postgresql") (not .postgresql.existingSecret) }}
worker.keda.postgresql.existingSecret: is required: a Secret with an address of PostgreSQL that KEDA can reach
{{- end }}
{{- end }}
{{- end }}
{{- with .own.podDisruptionBudget }}
{{- if .enabled }}
{{- $min := toString .minAvailable }}
{{- $max := toString .maxUnavailable }}
{{- if and (eq $min "") (eq $max "") }}
{{ $component }}.podDisruptionBudget: set minAvailable or maxUnavailable
{{- end }}
{{- if and (ne $min "") (ge (ternary (div (add (mul (trimSuffix "%" $min | int) $least) 99) 100) (int $min) (hasSuffix "%" $min) | int) $least) }}
{{ $component }}.podDisruptionBudget.minAvailable: {{ $min }} of {{ $least }} pods allows no disruption, so no node could be drained; set a smaller number, or maxUnavailable
{{- end }}
{{- if and (eq $min "") (has $max (list "0" "0%")) }}
{{ $component }}.podDisruptionBudget.maxUnavailable: with {{ $max }} no node could be drained; set at least 1
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Grace periods of the shutdown, and memory. */}}
{{- define "assay.faults.process" -}}
{{- range $component := ternary (list "api" "engine") (list "api") .Values.engine.enabled }}
{{- with index $.Values $component }}
{{- if lt (int .terminationGracePeriodSeconds) (add .preStopSleepSeconds .drainSeconds 10 | int) }}
{{ $component }}.terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }} is less than preStopSleepSeconds + drainSeconds + 10, so the process would be killed while it drains; set at least {{ add .preStopSleepSeconds .drainSeconds 10 }}
{{- end }}
{{- end }}
{{- end }}
{{- range $component := without (include "assay.components" . | fromYamlArray) "api" "engine" }}
{{- with index $.Values $component }}
{{- if lt (int .terminationGracePeriodSeconds) (add .drainSeconds 10 | int) }}
{{ $component }}.terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }} is less than drainSeconds + 10, so the process would be killed while it drains; set at least {{ add .drainSeconds 10 }}
{{- end }}
{{- end }}
{{- end }}
{{- include "assay.faults.memory" (dict "component" "worker" "value" "answersMib" "own" .Values.worker) }}
{{- if .Values.engine.enabled }}
{{- include "assay.faults.memory" (dict "component" "engine" "value" "memoryMib" "own" .Values.engine) }}
{{- end }}
{{- end }}

{{/* A memory limit that does not exceed the process's own limit. Takes (dict "component" "worker" "value" "answersMib" "own" .Values.worker). */}}
{{- define "assay.faults.memory" -}}
{{- $own := index .own .value }}
{{- $limit := dig "limits" "memory" "" .own.resources | toString }}
{{- if regexMatch "^[0-9]+[MG]i$" $limit }}
{{- $mib := ternary 1024 1 (hasSuffix "Gi" $limit) | mul (regexFind "^[0-9]+" $limit | int) }}
{{- if lt (int $mib) (add $own 256 | int) }}
{{ .component }}.resources.limits.memory: {{ $limit }} is less than {{ .value }} + 256 MiB; set at least {{ add $own 256 }}Mi, or lower {{ .component }}.{{ .value }}
{{- end }}
{{- end }}
{{- end }}

{{/* Variables and volumes that the chart sets itself. Takes (dict "root" $ "component" "api" "own" .Values.api). */}}
{{- define "assay.faults.extras" -}}
{{- $component := .component }}
{{- $names := list }}
{{- range include (printf "assay.env.%s" $component) .root | fromYamlArray }}
{{- $names = append $names .name }}
{{- end }}
{{- range .own.extraEnv }}
{{- $other := ternary (trimSuffix "_FILE" .name) (printf "%s_FILE" .name) (hasSuffix "_FILE" .name) }}
{{- if or (has .name $names) (and (hasPrefix "ASSAY_" .name) (has $other $names)) }}
{{ $component }}.extraEnv: {{ .name }} is already set; use the chart's value for it
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- $volumes := list "secrets" "mail" "ca" "artifacts" }}
{{- range .own.extraVolumes }}
{{- if has .name $volumes }}
{{ $component }}.extraVolumes: the name {{ .name }} is already used by another volume; choose another one
{{- end }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- $paths := list "/etc/assay/secrets" "/etc/assay/ca" "/var/lib/assay/mail" "/var/lib/assay/artifacts" }}
{{- range .own.extraVolumeMounts }}
{{- if has (.mountPath | trimSuffix "/") $paths }}
{{ $component }}.extraVolumeMounts: the path {{ .mountPath }} is already used by another mount; choose another one
{{- end }}
{{- if not (has .name $volumes) }}
{{ $component }}.extraVolumeMounts: there is no volume {{ .name }}; add it to {{ $component }}.extraVolumes
{{- end }}
{{- $paths = append $paths (.mountPath | trimSuffix "/") }}
{{- end }}
{{- end }}
