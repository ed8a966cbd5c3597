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
{{- $_ := set $config "huge_pages" (ternary "1g" "2m" (gt (int .Values.hugePages1Gi) 0)) -}}
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

{{- define "embag.resources" -}}
{{- $tables := mul .Values.memory.versions .Values.memory.tables -}}
{{- $pages := int .Values.hugePages1Gi -}}
{{- $gib := add .Values.memory.work (max 0 (sub $tables $pages)) -}}
{{- $amounts := dict "cpu" (toString .Values.cpu) "memory" (printf "%dGi" $gib) -}}
{{- if gt $pages 0 -}}
{{- $_ := set $amounts "hugepages-1Gi" (printf "%dGi" $pages) -}}
{{- end -}}
{{- $made := dict "requests" $amounts "limits" (deepCopy $amounts) -}}
{{- toYaml (mustMergeOverwrite $made (deepCopy .Values.resources)) -}}
{{- end -}}

{{/* The sum of the time before SIGTERM, the drain delay, the drain and 10 s. */}}
{{- define "embag.grace" -}}
{{- $config := .Values.config -}}
{{- $drain := div (add (int $config.drain_delay_ms) (int $config.drain_timeout_ms) 999) 1000 -}}
{{- add (int .Values.preStopSeconds) $drain 10 -}}
{{- end -}}
