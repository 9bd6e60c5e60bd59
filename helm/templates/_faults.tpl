{{/*
What contradicts itself in the values, a line each: the value, what is wrong, what to do. validate.yaml tells them all at once.
What one value alone may be is in values.schema.json.
*/}}
{{- define "assay.faults" -}}
{{- include "assay.faults.stores" . }}
{{- include "assay.faults.ways" . }}
{{- include "assay.faults.proxies" . }}
{{- include "assay.faults.monitoring" . }}
{{- range $component := list "api" "worker" }}
{{- include "assay.faults.scale" (dict "root" $ "component" $component "own" (index $.Values $component)) }}
{{- end }}
{{- include "assay.faults.process" . }}
{{- range $component := list "api" "worker" "migration" }}
{{- include "assay.faults.extras" (dict "root" $ "component" $component "own" (index $.Values $component)) }}
{{- end }}
{{- end }}

{{/* Databases, Redis, artifacts, mail, certificates. */}}
{{- define "assay.faults.stores" -}}
{{- with .Values.database }}
{{- if not .api.existingSecret }}
database.api.existingSecret: is needed: a Secret with the address of PostgreSQL for a login role in assay_api
{{- end }}
{{- if not .worker.existingSecret }}
database.worker.existingSecret: is needed: a Secret with the address of PostgreSQL for a login role in assay_worker
{{- end }}
{{- if and (not .owner.existingSecret) (ne $.Values.migration.mode "none") }}
database.owner.existingSecret: is needed where migration.mode is {{ $.Values.migration.mode }}: a Secret with the address for the schema's owner; or set migration.mode to none, and run assay-api migrate yourself
{{- end }}
{{- $api := printf "%s/%s" .api.existingSecret .api.key }}
{{- $worker := printf "%s/%s" .worker.existingSecret .worker.key }}
{{- $owner := printf "%s/%s" .owner.existingSecret .owner.key }}
{{- if or (eq $api $worker) (eq $api $owner) (eq $worker $owner) }}
database: api, worker and owner must not share an address: each is another role, and the api refuses to serve with one that can read answers; give each a Secret or a key of its own
{{- end }}
{{- end }}
{{- if not .Values.redis.existingSecret }}
redis.existingSecret: is needed: a Secret with the address of Redis
{{- end }}
{{- with .Values.artifacts }}
{{- if eq .type "s3" }}
{{- if not .s3.bucket }}
artifacts.s3.bucket: is needed where artifacts.type is s3
{{- end }}
{{- if and (hasPrefix "http://" .s3.endpoint) (not .s3.allowHttp) }}
artifacts.s3.endpoint: is without TLS; set artifacts.s3.allowHttp to true if that is meant
{{- end }}
{{- else if not (or .folder.existingClaim .folder.create) }}
artifacts.folder: api and workers need one volume that all of them mount; name an existingClaim, set create to true, or set artifacts.type to s3
{{- end }}
{{- $one := not (has "ReadWriteMany" .folder.accessModes) }}
{{- $more := or (gt (int $.Values.api.replicas) 1) (gt (int $.Values.worker.replicas) 1) $.Values.api.autoscaling.enabled $.Values.worker.autoscaling.enabled $.Values.worker.keda.enabled }}
{{- if and (eq .type "folder") .folder.create (not .folder.existingClaim) $one $more }}
artifacts.folder.accessModes: more than one pod of a kind needs ReadWriteMany; give it, one replica each without autoscaling, or set artifacts.type to s3
{{- end }}
{{- end }}
{{- with .Values.mail }}
{{- if and .existingSecret (not .from) }}
mail.from: is needed with mail.existingSecret, such as Assay <assay@example.org>
{{- end }}
{{- if and .from (not .existingSecret) }}
mail.existingSecret: is needed with mail.from: a Secret with the address of the mail server
{{- end }}
{{- end }}
{{- if and .Values.ca.configMap .Values.ca.secret }}
ca: give one of configMap and secret
{{- end }}
{{- with .Values.config.terms }}
{{- if ne (empty .version) (empty .url) }}
config.terms: version and url belong together; give both or none
{{- end }}
{{- end }}
{{- end }}

{{/* Ways in: Service, gateway, ingress. */}}
{{- define "assay.faults.ways" -}}
{{- with .Values.service }}
{{- if eq (int .httpPort) (int .grpcPort) }}
service: httpPort and grpcPort must differ, because a proxy learns from the port how to speak to it
{{- end }}
{{- if and (ne .type "ClusterIP") (not $.Values.config.publicUrl) (not $.Values.gateway.enabled) (not $.Values.ingress.enabled) }}
config.publicUrl: is needed where callers come by a Service of the type {{ .type }}: links in answers and mails begin with it
{{- end }}
{{- if and .loadBalancerSourceRanges (ne .type "LoadBalancer") }}
service.loadBalancerSourceRanges: holds for the type LoadBalancer only
{{- end }}
{{- if and .externalTrafficPolicy (eq .type "ClusterIP") }}
service.externalTrafficPolicy: holds for the types NodePort and LoadBalancer only
{{- end }}
{{- end }}
{{- with .Values.gateway }}
{{- if .enabled }}
{{- if not .parentRefs }}
gateway.parentRefs: is needed: name the Gateway that the routes belong to
{{- end }}
{{- if not .http.hostnames }}
gateway.http.hostnames: is needed: a route without names would take every request that comes to the Gateway
{{- end }}
{{- range .grpc.hostnames }}
{{- if has . $.Values.gateway.http.hostnames }}
gateway.grpc.hostnames: {{ . }} is a name of gateway.http.hostnames, too; a Gateway refuses one of two routes of different kinds that share a name, so give gRPC another one
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.ingress }}
{{- if .enabled }}
{{- if not .http.hosts }}
ingress.http.hosts: is needed: an Ingress without names would take every request that comes to the controller
{{- end }}
{{- range .grpc.hosts }}
{{- if has . $.Values.ingress.http.hosts }}
ingress.grpc.hosts: {{ . }} is a name of ingress.http.hosts, too; both would claim its path /, so give gRPC another one
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whose X-Forwarded-For is believed, and who can send one. */}}
{{- define "assay.faults.proxies" -}}
{{- $ways := list }}
{{- range $way := list "gateway" "ingress" }}
{{- if (index $.Values $way).enabled }}
{{- $ways = append $ways (printf "%s.enabled" $way) }}
{{- end }}
{{- end }}
{{- with .Values.config.trustedProxies }}
{{- if and $.Values.networkPolicy.enabled (not $.Values.networkPolicy.httpFrom) }}
networkPolicy.httpFrom: is needed with config.trustedProxies: any pod in these networks could call the api directly and forge X-Forwarded-For; name the pods of the gateway or ingress, or [{ipBlock: {cidr: …}}] of a load balancer outside the cluster
{{- end }}
{{- else }}
{{- if $ways }}
config.trustedProxies: is needed with {{ join " and " $ways }}: all callers would seem to have the proxy's address and would be throttled together, so that ten failed sign-ins of one lock out all; name the networks of the gateway's or ingress's pods
{{- end }}
{{- end }}
{{- end }}

{{- define "assay.faults.monitoring" -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) (or .Values.serviceMonitor.enabled .Values.podMonitor.enabled) }}
networkPolicy.metricsFrom: is needed where serviceMonitor or podMonitor is enabled: name the pods of Prometheus, which could not reach the private port otherwise
{{- end }}
{{- if and .Values.prometheusRule.enabled (not (.Files.Get "files/alerts.yaml")) }}
prometheusRule.enabled: this chart was packed without files/alerts.yaml; turn it off, or take a whole chart
{{- end }}
{{- if and .Values.grafanaDashboard.enabled (not (.Files.Get "files/dashboard.json")) }}
grafanaDashboard.enabled: this chart was packed without files/dashboard.json; turn it off, or take a whole chart
{{- end }}
{{- end }}

{{/* How many pods there are at least, and what may be taken away. Takes (dict "root" $ "component" "api" "own" .Values.api). */}}
{{- define "assay.faults.scale" -}}
{{- $least := int .own.replicas }}
{{- $component := .component }}
{{- with .own.autoscaling }}
{{- if .enabled }}
{{- $least = int .minReplicas }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{ $component }}.autoscaling: minReplicas is more than maxReplicas
{{- end }}
{{- if not (or .targetCPUUtilizationPercentage .targetMemoryUtilizationPercentage .metrics) }}
{{ $component }}.autoscaling: there is nothing to go by; give targetCPUUtilizationPercentage, targetMemoryUtilizationPercentage or metrics
{{- end }}
{{- end }}
{{- end }}
{{- with .own.keda }}
{{- if .enabled }}
{{- $least = int .minReplicas }}
{{- if $.own.autoscaling.enabled }}
worker: autoscaling and keda would both set the number of workers; enable one of them
{{- end }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
worker.keda: minReplicas is more than maxReplicas
{{- end }}
{{- if and (eq .trigger "prometheus") (not .prometheus.serverAddress) }}
worker.keda.prometheus.serverAddress: is needed, such as http://prometheus-operated.monitoring:9090
{{- end }}
{{- if ne (empty .prometheus.authenticationRef) (empty .prometheus.authModes) }}
worker.keda.prometheus: authenticationRef and authModes belong together; give both or none
{{- end }}
{{- if and (eq .trigger "postgresql") (not .postgresql.existingSecret) }}
worker.keda.postgresql.existingSecret: is needed: a Secret with an address of PostgreSQL that KEDA can reach
{{- end }}
{{- end }}
{{- end }}
{{- with .own.podDisruptionBudget }}
{{- if .enabled }}
{{- $min := toString .minAvailable }}
{{- $max := toString .maxUnavailable }}
{{- if and (eq $min "") (eq $max "") }}
{{ $component }}.podDisruptionBudget: give minAvailable or maxUnavailable
{{- end }}
{{- if and (ne $min "") (ge (ternary (div (add (mul (trimSuffix "%" $min | int) $least) 99) 100) (int $min) (hasSuffix "%" $min) | int) $least) }}
{{ $component }}.podDisruptionBudget.minAvailable: {{ $min }} of {{ $least }} pods leaves none to take away, and no node could ever be emptied; give less, or maxUnavailable
{{- end }}
{{- if and (eq $min "") (has $max (list "0" "0%")) }}
{{ $component }}.podDisruptionBudget.maxUnavailable: with {{ $max }} no node could ever be emptied; give at least 1
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Times of the way down, and memory. */}}
{{- define "assay.faults.process" -}}
{{- with .Values.api }}
{{- if lt (int .terminationGracePeriodSeconds) (add .preStopSleepSeconds .drainSeconds 10 | int) }}
api.terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }} is less than preStopSleepSeconds, drainSeconds and 10 more, so that the process would be killed while it drains; give at least {{ add .preStopSleepSeconds .drainSeconds 10 }}
{{- end }}
{{- end }}
{{- with .Values.worker }}
{{- if lt (int .terminationGracePeriodSeconds) (add .drainSeconds 10 | int) }}
worker.terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }} is less than drainSeconds and 10 more, so that the process would be killed while it drains; give at least {{ add .drainSeconds 10 }}
{{- end }}
{{- $limit := dig "limits" "memory" "" .resources | toString }}
{{- if regexMatch "^[0-9]+[MG]i$" $limit }}
{{- $mib := ternary 1024 1 (hasSuffix "Gi" $limit) | mul (regexFind "^[0-9]+" $limit | int) }}
{{- if lt (int $mib) (add .answersMib 256 | int) }}
worker.resources.limits.memory: {{ $limit }} is less than answersMib and 256 MiB more; give at least {{ add .answersMib 256 }}Mi, or lower worker.answersMib
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Variables and volumes that the chart has already. Takes (dict "root" $ "component" "api" "own" .Values.api). */}}
{{- define "assay.faults.extras" -}}
{{- $component := .component }}
{{- $names := list }}
{{- range include (printf "assay.env.%s" $component) .root | fromYamlArray }}
{{- $names = append $names .name }}
{{- end }}
{{- range .own.extraEnv }}
{{- $other := ternary (trimSuffix "_FILE" .name) (printf "%s_FILE" .name) (hasSuffix "_FILE" .name) }}
{{- if or (has .name $names) (and (hasPrefix "ASSAY_" .name) (has $other $names)) }}
{{ $component }}.extraEnv: {{ .name }} is given already; use the chart's value for it
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- $volumes := list "secrets" "mail" "ca" "artifacts" }}
{{- range .own.extraVolumes }}
{{- if has .name $volumes }}
{{ $component }}.extraVolumes: {{ .name }} is the name of another volume; give it another one
{{- end }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- $paths := list "/etc/assay/secrets" "/etc/assay/ca" "/var/lib/assay/mail" "/var/lib/assay/artifacts" }}
{{- range .own.extraVolumeMounts }}
{{- if has (.mountPath | trimSuffix "/") $paths }}
{{ $component }}.extraVolumeMounts: {{ .mountPath }} is where something else is mounted; give it another place
{{- end }}
{{- if not (has .name $volumes) }}
{{ $component }}.extraVolumeMounts: there is no volume {{ .name }}; add it to {{ $component }}.extraVolumes
{{- end }}
{{- $paths = append $paths (.mountPath | trimSuffix "/") }}
{{- end }}
{{- end }}
