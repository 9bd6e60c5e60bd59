{{/*
The Deployment of a process that serves the private port only. Takes (dict "root" $ "component" "deliverer" "binary" "assay-api"
"command" "deliver" "secrets" (list …)), with the secrets as assay.secretFile takes them. With "artifacts" true, the pods also mount the
artifact store if it is a folder.
*/}}
{{- define "assay.deployment" -}}
{{- $values := .root.Values }}
{{- $own := index $values .component }}
{{- $id := dict "root" .root "component" .component }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "assay.componentName" $id }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "assay.labels" $id | nindent 4 }}
  {{- with include "assay.annotations" (dict "root" .root "own" $own.annotations) | trim }}{{ . | nindent 2 }}{{- end }}
spec:
  replicas: {{ $own.replicas }}
  revisionHistoryLimit: {{ $own.revisionHistoryLimit }}
  minReadySeconds: {{ $own.minReadySeconds }}
  strategy:
    {{- toYaml $own.strategy | nindent 4 }}
  selector:
    matchLabels:
      {{- include "assay.selectorLabels" $id | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "assay.podLabels" (dict "root" .root "component" .component "extra" $own.podLabels) | nindent 8 }}
      {{- with include "assay.annotations" (dict "root" .root "own" $own.podAnnotations) | trim }}{{ . | nindent 6 }}{{- end }}
    spec:
      serviceAccountName: {{ include "assay.serviceAccountName" $id }}
      automountServiceAccountToken: {{ (index $values.serviceAccount .component).automountServiceAccountToken }}
      # Otherwise Kubernetes adds ASSAY_… variables for Services, which the process rejects as unknown settings.
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ $own.terminationGracePeriodSeconds }}
      {{- with $values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml $values.podSecurityContext | nindent 8 }}
      {{- with include "assay.scheduling" $own | trim }}{{ . | nindent 6 }}{{- end }}
      {{- with include "assay.topologySpread" $id | trim }}{{ . | nindent 6 }}{{- end }}
      containers:
        - name: {{ kebabcase .component }}
          image: {{ include "assay.image" (dict "image" $values.image "tag" .root.Chart.AppVersion) }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          command:
            - {{ .binary }}
          args:
            - {{ .command }}
          ports:
            - name: admin
              containerPort: 9090
          env:
            {{- include (printf "assay.env.%s" .component) .root | nindent 12 }}
            {{- with $own.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- include "assay.probes" $own | nindent 10 }}
          resources:
            {{- toYaml $own.resources | nindent 12 }}
          securityContext:
            {{- toYaml $values.securityContext | nindent 12 }}
          volumeMounts:
            - name: secrets
              mountPath: /etc/assay/secrets
              readOnly: true
            {{- with include "assay.caMount" .root | trim }}{{ . | nindent 12 }}{{- end }}
            {{- if .artifacts }}
            {{- with include "assay.artifactsMount" .root | trim }}{{ . | nindent 12 }}{{- end }}
            {{- end }}
            {{- with $own.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: secrets
          projected:
            defaultMode: 0440
            sources:
              {{- range .secrets }}
              {{- include "assay.secretFile" . | nindent 14 }}
              {{- end }}
        {{- with include "assay.caVolume" .root | trim }}{{ . | nindent 8 }}{{- end }}
        {{- if .artifacts }}
        {{- with include "assay.artifactsVolume" .root | trim }}{{ . | nindent 8 }}{{- end }}
        {{- end }}
        {{- with $own.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}
