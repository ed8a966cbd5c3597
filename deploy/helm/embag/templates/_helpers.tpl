{{- define "embag.name" -}}
{{- $name := ternary .Release.Name (printf "%s-embag" .Release.Name) (contains "embag" .Release.Name) -}}
{{- $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the service of the operators' port, and so of its Prometheus job. */}}
{{- define "embag.httpName" -}}
{{- printf "%s-http" (include "embag.name" . | trunc 58 | trimSuffix "-") -}}
{{- end -}}

{{/* The name of the part servers' objects. Leaves room for the names of sets and, in labels, for the
hashes that StatefulSets add. */}}
{{- define "embag.partsName" -}}
{{- $name := include "embag.name" . -}}
{{- if gt (len $name) 28 -}}
{{- $name = printf "%s-%s" ($name | trunc 22 | trimSuffix "-") (sha256sum $name | trunc 5) -}}
{{- end -}}
{{- printf "%s-parts" $name -}}
{{- end -}}

{{- define "embag.partsHttpName" -}}
{{- printf "%s-http" (include "embag.partsName" .) -}}
{{- end -}}

{{/* The name of the objects of a context's pods. */}}
{{- define "embag.objectName" -}}
{{- include (ternary "embag.partsName" "embag.name" (eq (default "" .Role) "part")) . -}}
{{- end -}}

{{/* Part servers have a name of their own, so that no selector finds them beside others. */}}
{{- define "embag.selector" -}}
app.kubernetes.io/name: {{ ternary "embag-part" "embag" (eq (default "" .Role) "part") }}
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
{{- if not .Values.parts.enabled -}}
{{- toYaml (merge $config .Values.config) -}}
{{- else if eq (default "" .Role) "part" -}}
{{- toYaml (merge $config (omit .Values.config
    "route_resolve_ms" "route_settle_ms" "route_slab_bytes" "flip_replicas" "next_wait_s"
    "hedge_percent" "hedge_delay_min_us")) -}}
{{- else -}}
{{- $_ := set $config "route" (printf "dns:%s.:8600" (include "embag.partsHost" .)) -}}
{{- if include "embag.routerSecret" . -}}
{{- $_ := set $config "route_tls_ca" "/etc/embag-route-tls/ca.crt" -}}
{{- $_ := set $config "route_tls_cert" "/etc/embag-route-tls/tls.crt" -}}
{{- $_ := set $config "route_tls_key" "/etc/embag-route-tls/tls.key" -}}
{{- end -}}
{{- if .Values.parts.tokenSecretName -}}
{{- $_ := set $config "route_token_file" "/etc/embag-route-token/token" -}}
{{- end -}}
{{- $replicas := min 2 (include "embag.partReplicas" . | int) -}}
{{- toYaml (merge $config .Values.config (dict "flip_replicas" $replicas)) -}}
{{- end -}}
{{- end -}}

{{/* The number of servers of a part that is not hot. */}}
{{- define "embag.partReplicas" -}}
{{- len .Values.parts.sets | default (int .Values.parts.replicas) -}}
{{- end -}}

{{/* The settings that take effect only at start: embagd --help does not mark them [live]. */}}
{{- define "embag.startConfig" -}}
{{- $config := include "embag.config" . | fromYaml -}}
{{- toYaml (omit $config
    "log_level" "log_format" "access_log" "watch" "response_bytes_max" "queries_max"
    "indices_max" "bags_max" "row_bytes_max" "in_flight_max" "connections_max"
    "handshakes_per_s_max" "queue_bytes_max" "load_bytes_per_s" "load_threads" "kept_versions_max" "kept_bytes_max"
    "route_slab_bytes" "access_log_sample" "access_log_per_s_max" "header_timeout_ms"
    "auth_timeout_ms"
    "message_timeout_ms" "write_timeout_ms" "deadline_max_ms" "ping_interval_min_ms"
    "ping_idle_interval_min_ms" "keepalive_ms" "keepalive_timeout_ms" "connection_idle_max_ms"
    "connection_age_max_ms" "connection_grace_ms" "drain_delay_ms" "drain_timeout_ms"
    "watch_poll_ms" "load_jitter_s" "claim_grace_s" "pin_ttl_s" "inline_below_us") -}}
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

{{/* The name by which routers find part servers, without the dot at its end that keeps resolvers from
trying the domains of the pod first. */}}
{{- define "embag.partsHost" -}}
{{- printf "%s.%s.svc.%s" (include "embag.partsName" .) .Release.Namespace .Values.parts.clusterDomain -}}
{{- end -}}

{{/* The secrets with the certificates of part servers and routers; empty without TLS. */}}
{{- define "embag.partsSecret" -}}
{{- with .Values.parts.tls -}}
{{- if .certManagerIssuer.name -}}
{{- printf "%s-tls" (include "embag.partsName" $) -}}
{{- else -}}
{{- .secretName -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "embag.routerSecret" -}}
{{- with .Values.parts.tls -}}
{{- if .certManagerIssuer.name -}}
{{- printf "%s-router-tls" (include "embag.partsName" $) -}}
{{- else -}}
{{- .routerSecretName -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name in the routers' certificate. */}}
{{- define "embag.routerName" -}}
{{- .Values.parts.tls.routerName | default (printf "router.%s" (include "embag.partsHost" .)) -}}
{{- end -}}

{{/* The auth_file of part servers: only routers may call them. */}}
{{- define "embag.partsAuth" -}}
principals:
  - name: router
    {{- if include "embag.partsSecret" . }}
    client_name: {{ include "embag.routerName" . | quote }}
    {{- end }}
    {{- if .Values.parts.tokenSecretName }}
    token_file: /etc/embag-route-token/token
    {{- end }}
    models: ["*"]
    router: true
end: true
{{- end -}}

{{/* The destinations of pods besides part servers: routers and embag-sync ask DNS for addresses. */}}
{{- define "embag.egress" -}}
{{- $egress := .Values.networkPolicy.egress -}}
{{- if or .Values.sync.source (eq .Role "router") -}}
{{- $dns := dict "ports" (list (dict "port" 53 "protocol" "UDP") (dict "port" 53 "protocol" "TCP")) -}}
{{- $egress = prepend $egress $dns -}}
{{- end -}}
{{- toYaml $egress -}}
{{- end -}}

{{/* Keeps the ports for lookups out of meshes of Istio and Linkerd. */}}
{{- define "embag.meshAnnotations" -}}
traffic.sidecar.istio.io/excludeInboundPorts: "8600"
config.linkerd.io/skip-inbound-ports: "8600"
{{- if eq .Role "router" }}
traffic.sidecar.istio.io/excludeOutboundPorts: "8600"
config.linkerd.io/skip-outbound-ports: "8600"
{{- end }}
{{- end -}}

{{/* The containers that copy models: one that runs before the server, and one beside it. */}}
{{- define "embag.syncContainers" -}}
{{- if not .Values.models.emptyDir -}}
{{- fail "sync.source needs a volume to copy to: set models.emptyDir and, with parts, parts.models.emptyDir" -}}
{{- end -}}
{{- $sync := .Values.sync -}}
{{- if not $sync.image -}}
{{- fail "sync.source needs sync.image, an image with embag-sync" -}}
{{- end -}}
{{- $directory := "/models" -}}
{{- with .Values.models.subPath -}}
{{- $directory = printf "/models/%s" . -}}
{{- end -}}
{{- range $name := splitList " " "sync sync-loop" }}
- name: {{ $name }}
  image: {{ $sync.image | quote }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  {{- if eq $name "sync-loop" }}
  restartPolicy: Always  # makes it a sidecar, which ends after the server
  {{- end }}
  command: [embag-sync]
  args:
    - {{ $sync.source | quote }}
    - {{ $directory | quote }}
    {{- if eq $.Role "router" }}
    - --router
    {{- end }}
    {{- with $.Part }}
    - --part={{ . }}
    {{- end }}
    {{- range $sync.models }}
    - --model={{ . }}
    {{- end }}
    - --versions={{ $sync.versions }}
    - --grace={{ int $sync.graceSeconds }}
    - --connections={{ $sync.connections }}
    {{- with $sync.endpoint }}
    - --endpoint={{ . }}
    {{- end }}
    - {{ ternary (printf "--every=%d" (int $sync.everySeconds)) "--until-present" (eq $name "sync-loop") }}
  {{- with $sync.secretName }}
  envFrom:
    - secretRef: {name: {{ . }}}
  {{- end }}
  {{- with $sync.env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    {{- toYaml $sync.resources | nindent 4 }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
  volumeMounts:
    - {name: models, mountPath: /models}
{{- end }}
{{- end -}}
