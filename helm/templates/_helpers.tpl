{{/* Names. */}}
{{- define "assay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "assay.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Labels that select a component's pods. They must never change. Takes (dict "root" $ "component" "api"), with the component as
assay.components names it. */}}
{{- define "assay.selectorLabels" -}}
app.kubernetes.io/name: {{ include "assay.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ kebabcase .component }}
{{- end }}

{{/* Labels of an object. Takes the same. */}}
{{- define "assay.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{ include "assay.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: assay
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of a pod, without the chart's version: a new chart must not replace pods. Takes the same, and "extra". */}}
{{- define "assay.podLabels" -}}
{{ include "assay.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: assay
{{- with merge (dict) .extra .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Annotations of an object, including the key; empty if there are none. Takes (dict "root" $ "own" .Values.…). */}}
{{- define "assay.annotations" -}}
{{- with merge (dict) (.own | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Name of an image. Takes (dict "image" .Values.image "tag" "default tag"). */}}
{{- define "assay.image" -}}
{{- with .image.registry }}{{ . }}/{{ end }}{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Name of a component's objects. Takes (dict "root" $ "component" "api"). */}}
{{- define "assay.componentName" -}}
{{ include "assay.fullname" .root }}-{{ kebabcase .component }}
{{- end }}

{{/* Name of a component's ServiceAccount. Takes the same. */}}
{{- define "assay.serviceAccountName" -}}
{{- $account := index .root.Values.serviceAccount .component }}
{{- if $account.create }}
{{- $account.name | default (include "assay.componentName" .) }}
{{- else }}
{{- $account.name | default "default" }}
{{- end }}
{{- end }}

{{- define "assay.claimName" -}}
{{- .Values.artifacts.folder.existingClaim | default (printf "%s-artifacts" (include "assay.fullname" .)) }}
{{- end }}

{{/* URL of the API for clients. */}}
{{- define "assay.publicUrl" -}}
{{- if .Values.config.publicUrl }}
{{- .Values.config.publicUrl }}
{{- else if .Values.gateway.enabled }}
{{- printf "https://%s" (first .Values.gateway.http.hostnames) }}
{{- else if .Values.ingress.enabled }}
{{- printf "%s://%s" (ternary "https" "http" (not (empty .Values.ingress.http.tls))) (first .Values.ingress.http.hosts) }}
{{- else }}
{{- $port := ternary "" (printf ":%v" .Values.service.httpPort) (eq (int .Values.service.httpPort) 80) }}
{{- printf "http://%s.%s.svc%s" (include "assay.fullname" .) .Release.Namespace $port }}
{{- end }}
{{- end }}

{{/* The components of long-running processes, as a list in YAML. Each has the name of its values, and labels and objects have it in
lower case with hyphens. */}}
{{- define "assay.components" -}}
{{- $components := list "api" "worker" }}
{{- range $optional := list "engine" "deliverer" "receiptLog" "checker" }}
{{- if (index $.Values $optional).enabled }}
{{- $components = append $components $optional }}
{{- end }}
{{- end }}
{{- toYaml $components }}
{{- end }}

{{/* The engines by name: the chart's own one, then the external ones. Empty if there are none. */}}
{{- define "assay.engines" -}}
{{- $engines := list }}
{{- if .Values.engine.enabled }}
{{- $engines = append $engines (printf "default=http://%s-engine.%s.svc:9500" (include "assay.fullname" .) .Release.Namespace) }}
{{- end }}
{{- range $name, $url := .Values.config.externalEngines }}
{{- $engines = append $engines (printf "%s=%s" $name $url) }}
{{- end }}
{{- join "," $engines }}
{{- end }}

{{- define "assay.hasCa" -}}
{{- if or .Values.ca.configMap .Values.ca.secret }}true{{ end }}
{{- end }}

{{/* A key of a Secret as a file. Takes (dict "secret" "name" "key" "url" "path" "database-url"). */}}
{{- define "assay.secretFile" -}}
- secret:
    name: {{ .secret }}
    items:
      - key: {{ .key }}
        path: {{ .path }}
{{- end }}

{{/* Volume and mount of the private certificate authority's certificates. */}}
{{- define "assay.caVolume" -}}
{{- if include "assay.hasCa" . }}
- name: ca
  {{- if .Values.ca.configMap }}
  configMap:
    name: {{ .Values.ca.configMap }}
  {{- else }}
  secret:
    secretName: {{ .Values.ca.secret }}
  {{- end }}
    defaultMode: 0444
    items:
      - key: {{ .Values.ca.key }}
        path: ca.crt
{{- end }}
{{- end }}

{{- define "assay.caMount" -}}
{{- if include "assay.hasCa" . }}
- name: ca
  mountPath: /etc/assay/ca
  readOnly: true
{{- end }}
{{- end }}

{{/* Volume and mount of the artifact store, if it is a folder. */}}
{{- define "assay.artifactsVolume" -}}
{{- if eq .Values.artifacts.type "folder" }}
- name: artifacts
  persistentVolumeClaim:
    claimName: {{ include "assay.claimName" . }}
{{- end }}
{{- end }}

{{- define "assay.artifactsMount" -}}
{{- if eq .Values.artifacts.type "folder" }}
- name: artifacts
  mountPath: /var/lib/assay/artifacts
{{- end }}
{{- end }}

{{/* Volumes of the engine and their mounts. It only reads the artifact store. */}}
{{- define "assay.engineVolumes" -}}
{{- include "assay.caVolume" . }}
{{- include "assay.artifactsVolume" . }}
{{- with .Values.engine.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "assay.engineMounts" -}}
{{- include "assay.caMount" . }}
{{- with include "assay.artifactsMount" . }}
{{- . }}
  readOnly: true
{{- end }}
{{- with .Values.engine.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The three probes on the private port. Takes .Values.api or the values of another component. */}}
{{- define "assay.probes" -}}
startupProbe:
  httpGet:
    path: /livez
    port: admin
  {{- toYaml .startupProbe | nindent 2 }}
livenessProbe:
  httpGet:
    path: /livez
    port: admin
  {{- toYaml .livenessProbe | nindent 2 }}
readinessProbe:
  httpGet:
    path: /readyz
    port: admin
  {{- toYaml .readinessProbe | nindent 2 }}
{{- end }}

{{/* Scheduling of pods. Takes the same, or .Values.migration. */}}
{{- define "assay.scheduling" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Topology spread constraints of a component's pods. Takes (dict "root" $ "component" "api"). */}}
{{- define "assay.topologySpread" -}}
{{- $id := . }}
{{- with (index .root.Values .component).topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml . | indent 4 | trim }}
    {{- if not .labelSelector }}
    labelSelector:
      matchLabels:
        {{- include "assay.selectorLabels" $id | nindent 8 }}
    {{- /* Otherwise an upgrade would spread the new pods around the old ones, which then end. */}}
    {{- if not .matchLabelKeys }}
    matchLabelKeys:
      - pod-template-hash
    {{- end }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The egress rule to the receivers of webhooks. Empty if it would allow no peer, because a rule without peers allows all. */}}
{{- define "assay.egressToReceivers" -}}
{{- $peers := .Values.networkPolicy.webhooksTo }}
{{- range .Values.webhooks.networks }}
{{- $peers = append $peers (dict "ipBlock" (dict "cidr" .)) }}
{{- end }}
{{- with $peers -}}
- ports:
    - protocol: TCP
  to:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{/* An egress rule. Takes (dict "to" .Values.networkPolicy.… "protocols" (list "UDP" "TCP")). */}}
{{- define "assay.egress" -}}
{{- $protocols := .protocols | default (list "TCP") -}}
- ports:
    {{- range $port := .to.ports }}
    {{- range $protocol := $protocols }}
    - port: {{ $port }}
      protocol: {{ $protocol }}
    {{- end }}
    {{- end }}
  {{- with .to.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
