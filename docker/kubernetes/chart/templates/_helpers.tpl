{{- define "vernier.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "vernier.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "vernier.selector" -}}
app.kubernetes.io/name: vernier
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "vernier.labels" -}}
{{ include "vernier.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "vernier.program" -}}
{{ .Values.programPath | default "/etc/vernier/program.py" }}
{{- end }}

{{- define "vernier.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "vernier.security" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{/* What all of our pods have in common. Links to services would be environment variables VERNIER_…, which are refused
as unknown settings. */}}
{{- define "vernier.pod" -}}
enableServiceLinks: false
securityContext:
  {{- include "vernier.podSecurity" . | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* One of a kind on each host, as far as there are hosts. */}}
{{- define "vernier.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "vernier.selector" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The credentials of the store are environment variables, for all processes that read the state. */}}
{{- define "vernier.store" -}}
{{- with .Values.secrets.store }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}

{{- define "vernier.secretMounts" -}}
{{- if .Values.secrets.kafka }}
- {name: kafka-secret, mountPath: /etc/vernier/kafka, readOnly: true}
{{- end }}
{{- if .Values.secrets.tokens }}
- {name: tokens, mountPath: /etc/vernier/tokens, readOnly: true}
{{- end }}
{{- end }}

{{- define "vernier.secretVolumes" -}}
{{- with .Values.secrets.kafka }}
- name: kafka-secret
  secret: {secretName: {{ . }}, defaultMode: 288, items: [{key: password, path: password}]}
{{- end }}
{{- with .Values.secrets.tokens }}
- name: tokens
  secret: {secretName: {{ . }}, defaultMode: 288, items: [{key: read, path: read}, {key: admin, path: admin}]}
{{- end }}
{{- end }}

{{- define "vernier.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{/* The settings of the service; `settings` comes last. What differs from pod to pod is in the environment. */}}
{{- define "vernier.settings" -}}
{{- if not (or .Values.secrets.tokens .Values.http.anonymous) }}
{{- fail "name a secret with tokens (secrets.tokens), or say what requests without one may do (http.anonymous)" }}
{{- end }}
{{- $http := dict "host" "0.0.0.0" "port" .Values.http.port "open_metrics" true }}
{{- with .Values.http.anonymous }}{{ $_ := set $http "anonymous" . }}{{ end }}
{{- if .Values.secrets.tokens }}
{{- $_ := set $http "read_tokens_file" "/etc/vernier/tokens/read" }}
{{- $_ := set $http "admin_tokens_file" "/etc/vernier/tokens/admin" }}
{{- end }}
{{- $kafka := dict "bootstrap" .Values.kafka.bootstrap "embedded" false }}
{{- if .Values.secrets.kafka }}{{ $_ := set $kafka "sasl_password_file" "/etc/vernier/kafka/password" }}{{ end }}
{{- $state := dict "path" .Values.state.path "cache" "/var/cache/vernier" "scratch" "/var/lib/vernier/scratch" }}
{{- $log := dict "directory" "/var/lib/vernier/logs" "format" "json" }}
{{- $made := dict "workers" .Values.workers "state" $state "kafka" $kafka "http" $http "log" $log }}
{{- if .Values.executors.count }}
{{- $conf := dict
  "spark.executor.instances" (toString .Values.executors.count)
  "spark.executor.cores" (toString .Values.executors.cores)
  "spark.executor.memory" .Values.executors.memory
  "spark.executor.memoryOverhead" .Values.executors.overhead
  "spark.kubernetes.executor.request.cores" .Values.executors.cpu
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.container.image" (include "vernier.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.executor.podTemplateFile" "/etc/vernier/executor.yaml"
  "spark.kubernetes.executor.podTemplateContainerName" "executor"
  "spark.kubernetes.executor.disableConfigMap" "true"
  "spark.kubernetes.allocation.batch.delay" "1s"
}}
{{- $_ := set $made "spark" (dict "master" "k8s://https://kubernetes.default.svc" "conf" $conf) }}
{{- end }}
{{- toYaml (mergeOverwrite $made (deepCopy .Values.settings)) }}
{{- end }}
