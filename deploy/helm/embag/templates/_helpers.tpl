{{- define "embag.name" -}}
{{- $name := ternary .Release.Name (printf "%s-embag" .Release.Name) (contains "embag" .Release.Name) -}}
{{- $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the service of the operators' port, and so of its Prometheus job. */}}
{{- define "embag.httpName" -}}
{{- printf "%s-http" (include "embag.name" . | trunc 58 | trimSuffix "-") -}}
{{- end -}}

{{- define "embag.selector" -}}
app.kubernetes.io/name: embag
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "embag.labels" -}}
{{ include "embag.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "embag.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest }}
{{- else -}}
{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The settings: those of the values, overridden by those that the manifests depend on. Helm reads
an unquoted off as false. No setting in the values takes false, so false becomes off again. */}}
{{- define "embag.config" -}}
{{- $config := dict -}}
{{- range $name, $value := .Values.config -}}
{{- if kindIs "bool" $value -}}
{{- $_ := set $config $name "off" -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "admin_listen" "unix:/run/embag/admin.sock" -}}
{{- $_ := set $config "watch_settings" true -}}
{{- $_ := set $config "huge_pages" (ternary "1g" "2m" (gt (int .Values.hugePages1Gi) 0)) -}}
{{- if ne .Values.resident.mode "none" -}}
{{- if gt (int .Values.hugePages1Gi) 0 -}}
{{- fail "resident.mode must be none if hugePages1Gi is not 0: tables in pages of 1 GiB cannot be files" -}}
{{- end -}}
{{- $_ := set $config "resident_dir" "/resident" -}}
{{- $_ := set $config "resident_readers" .Values.resident.readers -}}
{{- end -}}
{{- with .Values.tls -}}
{{- if .secretName -}}
{{- $_ := set $config "tls_cert" "/etc/embag-tls/tls.crt" -}}
{{- $_ := set $config "tls_key" "/etc/embag-tls/tls.key" -}}
{{- $_ := set $config "tls_min_version" .minVersion -}}
{{- if .clientCaSecretName -}}
{{- $_ := set $config "tls_client_ca" "/etc/embag-client-ca/ca.crt" -}}
{{- $_ := set $config "tls_client_verify" .clientVerify -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.auth -}}
{{- if .secretName -}}
{{- $_ := set $config "auth_file" "/etc/embag-auth/auth.yaml" -}}
{{- $_ := set $config "admin_on_data_port" .adminOnDataPort -}}
{{- end -}}
{{- end -}}
{{- toYaml (merge $config .Values.config) -}}
{{- end -}}

{{/* The settings that take effect only at start: embagd --help does not mark them [live]. */}}
{{- define "embag.startConfig" -}}
{{- $config := include "embag.config" . | fromYaml -}}
{{- toYaml (omit $config
    "log_level" "log_format" "access_log" "watch" "response_bytes_max" "queries_max"
    "indices_max" "bags_max" "row_bytes_max" "in_flight_max" "connections_max"
    "handshakes_per_s_max" "queue_bytes_max" "load_bytes_per_s" "load_threads" "kept_versions_max" "kept_bytes_max"
    "access_log_sample" "access_log_per_s_max" "header_timeout_ms" "auth_timeout_ms"
    "message_timeout_ms" "write_timeout_ms" "deadline_max_ms" "ping_interval_min_ms"
    "ping_idle_interval_min_ms" "keepalive_ms" "keepalive_timeout_ms" "connection_idle_max_ms"
    "connection_age_max_ms" "connection_grace_ms" "drain_delay_ms" "drain_timeout_ms"
    "watch_poll_ms" "load_jitter_s" "claim_grace_s" "inline_below_us") -}}
{{- end -}}

{{/* The GiB of all tables in memory. */}}
{{- define "embag.tables" -}}
{{- mul .Values.memory.versions .Values.memory.tables -}}
{{- end -}}

{{/* The GiB of resident files. */}}
{{- define "embag.residentSize" -}}
{{- $size := int .Values.resident.size | default (include "embag.tables" . | int) -}}
{{- if eq $size 0 -}}
{{- fail "resident.size and memory.tables must not both be 0: resident files need room" -}}
{{- end -}}
{{- $size -}}
{{- end -}}

{{/* Pages of a tmpfs count towards the memory of the pod that writes them. memory.tables covers
resident tables already, so only what an emptyDir can hold beyond that is added. Pages of a pool do
not count towards the pod's memory. */}}
{{- define "embag.resources" -}}
{{- $tables := include "embag.tables" . | int -}}
{{- $pages := int .Values.hugePages1Gi -}}
{{- $held := max 0 (sub $tables $pages) -}}
{{- $amounts := dict "cpu" (toString .Values.cpu) -}}
{{- if gt $pages 0 -}}
{{- $_ := set $amounts "hugepages-1Gi" (printf "%dGi" $pages) -}}
{{- end -}}
{{- with .Values.resident -}}
{{- if ne .mode "none" -}}
{{- $size := include "embag.residentSize" $ | int -}}
{{- if eq .medium "HugePages-2Mi" -}}
{{- $held = max 0 (sub $tables $size) -}}
{{- $_ := set $amounts "hugepages-2Mi" (printf "%dGi" $size) -}}
{{- else if eq .mode "emptyDir" -}}
{{- $held = max $tables $size -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $amounts "memory" (printf "%dGi" (add .Values.memory.work $held)) -}}
{{- $made := dict "requests" $amounts "limits" (deepCopy $amounts) -}}
{{- toYaml (mustMergeOverwrite $made (deepCopy .Values.resources)) -}}
{{- end -}}

{{/* The sum of the time before SIGTERM, the drain delay, the drain and 10 s. */}}
{{- define "embag.grace" -}}
{{- $config := .Values.config -}}
{{- $drain := div (add (int $config.drain_delay_ms) (int $config.drain_timeout_ms) 999) 1000 -}}
{{- add (int .Values.preStopSeconds) $drain 10 -}}
{{- end -}}
