{{/* Variables that make a process trust the private certificate authority. SSL_CERT_FILE names the certificates of the image,
because SSL_CERT_DIR alone would replace them. */}}
{{- define "assay.env.certificates" -}}
{{- if include "assay.hasCa" . }}
- name: SSL_CERT_FILE
  value: /etc/ssl/certs/ca-certificates.crt
- name: SSL_CERT_DIR
  value: /etc/assay/ca
{{- end }}
{{- end }}

{{/* The same, and the variables of the library of PostgreSQL. */}}
{{- define "assay.env.trust" -}}
{{- with include "assay.env.certificates" . | trim }}
{{ . }}
- name: PGSSLROOTCERT
  value: /etc/assay/ca/ca.crt
{{- end }}
{{- with .Values.database.sslMode }}
- name: PGSSLMODE
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Variables of all processes with a private port. Takes (dict "root" $ "own" .Values.api). */}}
{{- define "assay.env.process" -}}
- name: ASSAY_ADMIN_LISTEN
  value: {{ printf "%s:9090" .own.listenHost | quote }}
- name: ASSAY_DRAIN_SECONDS
  value: {{ .own.drainSeconds | quote }}
- name: ASSAY_LOG
  value: {{ .root.Values.config.logLevel | quote }}
- name: ASSAY_LOG_FORMAT
  value: {{ .root.Values.config.logFormat | quote }}
{{- end }}

{{/* Variables of the artifact store. Takes (dict "root" $ "secret" "name of the Secret with the access keys"). */}}
{{- define "assay.env.artifacts" -}}
{{- $secret := .secret }}
{{- if eq .root.Values.artifacts.type "s3" }}
{{- with .root.Values.artifacts.s3 -}}
- name: ASSAY_ARTIFACTS
  value: {{ printf "s3://%s" (list .bucket (.prefix | trimAll "/") | compact | join "/") | quote }}
{{- with .region }}
- name: AWS_REGION
  value: {{ . | quote }}
{{- end }}
{{- with .endpoint }}
- name: AWS_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- if .allowHttp }}
- name: AWS_ALLOW_HTTP
  value: "true"
{{- end }}
{{- if $secret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ .accessKeyIdKey }}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ .secretAccessKeyKey }}
{{- end }}
{{- end }}
{{- else -}}
- name: ASSAY_ARTIFACTS
  value: /var/lib/assay/artifacts
{{- end }}
{{- end }}

{{/* Variables of the API and the workers. Takes (dict "root" $ "own" .Values.api). */}}
{{- define "assay.env.common" -}}
{{- $values := .root.Values }}
- name: ASSAY_DATABASE_URL_FILE
  value: /etc/assay/secrets/database-url
- name: ASSAY_REDIS_URL_FILE
  value: /etc/assay/secrets/redis-url
- name: ASSAY_REDIS_PREFIX
  value: {{ $values.redis.prefix | quote }}
- name: ASSAY_DATABASE_CONNECTIONS
  value: {{ .own.databaseConnections | quote }}
{{ include "assay.env.process" . }}
{{- with include "assay.engines" .root }}
- name: ASSAY_ENGINES
  value: {{ . | quote }}
{{- end }}
{{- with $values.config.hfmSha }}
- name: ASSAY_HFM_SHA
  value: {{ . | quote }}
{{- end }}
{{- with $values.tracing.otlpEndpoint }}
- name: ASSAY_OTLP_ENDPOINT
  value: {{ . | quote }}
- name: ASSAY_TRACE_SHARE
  value: {{ $values.tracing.share | quote }}
{{- end }}
{{ include "assay.env.artifacts" (dict "root" .root "secret" $values.artifacts.s3.existingSecret) }}
{{- with include "assay.env.trust" .root | trim }}
{{ . }}
{{- end }}
{{- end }}

{{/* Variables of the processes that create or deliver webhooks. */}}
{{- define "assay.env.webhooks" -}}
{{- with .Values.webhooks -}}
- name: ASSAY_WEBHOOK_KEY_FILE
  value: /etc/assay/secrets/webhook-key
- name: ASSAY_WEBHOOK_HTTP
  value: {{ .allowHttp | quote }}
{{- with .networks }}
- name: ASSAY_WEBHOOK_NETWORKS
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "assay.env.api" -}}
{{- $values := .Values }}
{{- with .Values.config -}}
- name: ASSAY_LISTEN
  value: {{ printf "%s:8080" $values.api.listenHost | quote }}
- name: ASSAY_PUBLIC_URL
  value: {{ include "assay.publicUrl" $ | quote }}
- name: ASSAY_ENV
  value: {{ .environment | quote }}
- name: ASSAY_POOL_WAIT_MS
  value: {{ .poolWaitMs | quote }}
- name: ASSAY_CONNECTIONS_PER_ADDRESS
  value: {{ .connectionsPerAddress | quote }}
- name: ASSAY_REQUEST_MEMORY_MIB
  value: {{ .requestMemoryMib | quote }}
- name: ASSAY_GRPC_REFLECTION
  value: {{ .grpcReflection | quote }}
- name: ASSAY_AUTH_FAILURES_PER_MINUTE
  value: {{ .authFailuresPerMinute | quote }}
- name: ASSAY_SIGN_UP
  value: {{ .signUp | quote }}
{{- with .reservedHandles }}
- name: ASSAY_RESERVED_HANDLES
  value: {{ . | quote }}
{{- end }}
- name: ASSAY_SUITE_REVIEW
  value: {{ .suiteReview | quote }}
- name: ASSAY_SIGN_IN_MAILS_PER_MINUTE
  value: {{ .signInMailsPerMinute | quote }}
- name: ASSAY_DEVICE_LOGINS_PER_MINUTE
  value: {{ .deviceLoginsPerMinute | quote }}
- name: ASSAY_FREE_UPLOAD_HOURS
  value: {{ .freeUploadHours | quote }}
- name: ASSAY_JOB_DAYS
  value: {{ .retention.jobDays | quote }}
- name: ASSAY_CANCELLED_JOB_DAYS
  value: {{ .retention.cancelledJobDays | quote }}
- name: ASSAY_UPLOAD_DAYS
  value: {{ .retention.uploadDays | quote }}
- name: ASSAY_SESSION_DAYS
  value: {{ .retention.sessionDays | quote }}
- name: ASSAY_RECORD_DAYS
  value: {{ .retention.recordDays | quote }}
{{- with .trustedProxies }}
- name: ASSAY_TRUSTED_PROXIES
  value: {{ join "," . | quote }}
{{- end }}
{{- with .corsOrigins }}
- name: ASSAY_CORS_ORIGINS
  value: {{ join "," . | quote }}
{{- end }}
{{- with .dnsServer }}
- name: ASSAY_DNS_SERVER
  value: {{ . | quote }}
{{- end }}
- name: ASSAY_DOMAIN_CHECK_DAYS
  value: {{ .domainCheckDays | quote }}
- name: ASSAY_SERVE_DEADLINE
  value: {{ .serveDeadlineSeconds | quote }}
{{- if .terms.version }}
- name: ASSAY_TERMS_VERSION
  value: {{ .terms.version | quote }}
- name: ASSAY_TERMS_URL
  value: {{ .terms.url | quote }}
{{- end }}
{{- end }}
{{- if .Values.mail.existingSecret }}
- name: ASSAY_SMTP_URL_FILE
  value: /etc/assay/secrets/smtp-url
- name: ASSAY_MAIL_FROM
  value: {{ .Values.mail.from | quote }}
{{- else }}
- name: ASSAY_MAIL_FOLDER
  value: /var/lib/assay/mail
{{- end }}
{{- if .Values.signIn.providers.existingSecret }}
- name: ASSAY_OIDC_ISSUERS_FILE
  value: /etc/assay/secrets/sign-in-providers
{{- end }}
{{- if .Values.webhooks.existingSecret }}
{{ include "assay.env.webhooks" . }}
- name: ASSAY_WEBHOOK_DELIVERY
  value: {{ not .Values.deliverer.enabled | quote }}
{{- end }}
{{- if .Values.receiptLog.enabled }}
- name: ASSAY_RECEIPT_LOG
  value: "false"
{{- end }}
{{ include "assay.env.common" (dict "root" $ "own" .Values.api) | trim }}
{{- end }}

{{- define "assay.env.worker" -}}
- name: ASSAY_WORKER_SLOTS
  value: {{ .Values.worker.slots | quote }}
- name: ASSAY_WORKER_ANSWERS_MIB
  value: {{ .Values.worker.answersMib | quote }}
{{ include "assay.env.common" (dict "root" $ "own" .Values.worker) | trim }}
{{- end }}

{{/* The engine has no database and no Redis, and refuses to start with their passwords. */}}
{{- define "assay.env.engine" -}}
- name: ASSAY_ENGINE_LISTEN
  value: {{ printf "%s:9500" .Values.engine.listenHost | quote }}
- name: ASSAY_ENGINE_MEMORY
  value: {{ mul .Values.engine.memoryMib 1048576 | quote }}
{{ include "assay.env.process" (dict "root" $ "own" .Values.engine) }}
{{ include "assay.env.artifacts" (dict "root" $ "secret" (.Values.artifacts.s3.engineExistingSecret | default .Values.artifacts.s3.existingSecret)) }}
{{- with include "assay.env.certificates" . | trim }}
{{ . }}
{{- end }}
{{- end }}

{{/* The deliverer refuses to start with the passwords of Redis and of the mail server. It does not use the artifact store. */}}
{{- define "assay.env.deliverer" -}}
- name: ASSAY_DATABASE_URL_FILE
  value: /etc/assay/secrets/database-url
{{ include "assay.env.webhooks" . }}
{{- with .Values.config.dnsServer }}
- name: ASSAY_DNS_SERVER
  value: {{ . | quote }}
{{- end }}
{{ include "assay.env.process" (dict "root" $ "own" .Values.deliverer) }}
{{- with include "assay.env.trust" . | trim }}
{{ . }}
{{- end }}
{{- end }}

{{/* The receipt log needs neither Redis nor the mail server. */}}
{{- define "assay.env.receiptLog" -}}
- name: ASSAY_DATABASE_URL_FILE
  value: /etc/assay/secrets/database-url
- name: ASSAY_RECEIPT_KEYS_FILE
  value: /etc/assay/secrets/receipt-keys
- name: ASSAY_LOG_KEY_FILE
  value: /etc/assay/secrets/log-key
- name: ASSAY_LOG_ORIGIN
  value: {{ .Values.receiptLog.origin | quote }}
{{ include "assay.env.process" (dict "root" $ "own" .Values.receiptLog) }}
{{ include "assay.env.artifacts" (dict "root" $ "secret" .Values.artifacts.s3.existingSecret) }}
{{- with include "assay.env.trust" . | trim }}
{{ . }}
{{- end }}
{{- end }}

{{/* The checker refuses to start with any other secret. It does not use the artifact store. */}}
{{- define "assay.env.checker" -}}
- name: ASSAY_CHECKER_DATABASE_URL_FILE
  value: /etc/assay/secrets/database-url
{{ include "assay.env.process" (dict "root" $ "own" .Values.checker) }}
{{- with include "assay.env.trust" . | trim }}
{{ . }}
{{- end }}
{{- end }}

{{- define "assay.env.migration" -}}
- name: ASSAY_DATABASE_URL_FILE
  value: /etc/assay/secrets/database-url
{{- with include "assay.env.trust" . | trim }}
{{ . }}
{{- end }}
{{- end }}
