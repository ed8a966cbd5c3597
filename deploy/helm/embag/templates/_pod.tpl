{{/* The template of a pod, for a context with these members besides Values, Chart and Release:
Role: server, router or part; Part and Set: of a part server, the setting part and the name of its set. */}}
{{- define "embag.pod" -}}
metadata:
  labels:
    {{- include "embag.labels" . | nindent 4 }}
    {{- with .Set }}
    embag.io/set: {{ . }}
    {{- end }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A change of a setting that is read only at start needs new pods.
    checksum/config: {{ include "embag.startConfig" . | sha256sum }}
    {{- if .Values.mesh.bypass }}
    {{- include "embag.meshAnnotations" . | nindent 4 }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  terminationGracePeriodSeconds: {{ include "embag.grace" . }}
  automountServiceAccountToken: false
  # The variables that Kubernetes sets for a service called embag look like settings.
  enableServiceLinks: false
  {{- with .Values.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" }}
  {{- with get $.Values $field }}
  {{ $field }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with .Values.topologySpread }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: {{ .topologyKey }}
      whenUnsatisfiable: {{ .whenUnsatisfiable }}
      labelSelector:
        matchLabels:
          {{- include "embag.selector" $ | nindent 10 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  {{- if or .Values.models.initContainers .Values.sync.source }}
  initContainers:
    {{- range .Values.models.initContainers }}
    - {{- toYaml (merge (dict "volumeMounts" (append (.volumeMounts | default list) (dict "name" "models" "mountPath" "/models"))) .) | nindent 6 }}
    {{- end }}
    {{- if .Values.sync.source }}
    {{- include "embag.syncContainers" . | trim | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    - name: embagd
      image: {{ include "embag.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      # The last three are flags because the image's variables for them override the file.
      args:
        - --config=/etc/embag/embagd.yaml
        - --model-repository=/models
        - --listen={{ .Values.listenHost }}:8600
        - --http-listen={{ .Values.listenHost }}:8601
        {{- with .Part }}
        - --part={{ . }}
        {{- end }}
      ports:
        - {name: grpc, containerPort: 8600}
        - {name: http, containerPort: 8601}
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        {{- toYaml .Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        {{- toYaml .Values.probes.readiness | nindent 8 }}
      {{- if .Values.preStopSeconds }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ .Values.preStopSeconds }}}
      {{- end }}
      resources:
        {{- include "embag.resources" . | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
        {{- with .Values.numa.seccompProfile }}
        seccompProfile:
          type: {{ ternary "Unconfined" "Localhost" (eq . "Unconfined") }}
          {{- if ne . "Unconfined" }}
          localhostProfile: {{ . | quote }}
          {{- end }}
        {{- end }}
      volumeMounts:
        - {name: config, mountPath: /etc/embag, readOnly: true}
        {{- if .Values.tls.secretName }}
        - {name: tls, mountPath: /etc/embag-tls, readOnly: true}
        {{- end }}
        {{- if and .Values.tls.secretName .Values.tls.clientCaSecretName }}
        - {name: client-ca, mountPath: /etc/embag-client-ca, readOnly: true}
        {{- end }}
        {{- if .Values.auth.secretName }}
        - {name: auth, mountPath: /etc/embag-auth, readOnly: true}
        {{- end }}
        {{- if and (eq .Role "router") (include "embag.routerSecret" .) }}
        - {name: route-tls, mountPath: /etc/embag-route-tls, readOnly: true}
        {{- end }}
        {{- if and (ne .Role "server") .Values.parts.tokenSecretName }}
        - {name: route-token, mountPath: /etc/embag-route-token, readOnly: true}
        {{- end }}
        - {name: run, mountPath: /run/embag}
        {{- if ne .Values.resident.mode "none" }}
        - {name: resident, mountPath: /resident}
        {{- end }}
        - name: models
          mountPath: /models
          readOnly: true
          {{- with .Values.models.subPath }}
          subPath: {{ . }}
          {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "embag.objectName" . }}
    {{- with .Values.tls.secretName }}
    - name: tls
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- if and .Values.tls.secretName .Values.tls.clientCaSecretName }}
    - name: client-ca
      secret: {secretName: {{ .Values.tls.clientCaSecretName }}, defaultMode: 0440}
    {{- end }}
    {{- with .Values.auth.secretName }}
    - name: auth
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- if eq .Role "router" }}
    {{- with include "embag.routerSecret" . }}
    - name: route-tls
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- end }}
    {{- if ne .Role "server" }}
    {{- with .Values.parts.tokenSecretName }}
    - name: route-token
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- end }}
    - name: run
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    {{- if ne .Values.resident.mode "none" }}
    - name: resident
      {{- if eq .Values.resident.mode "emptyDir" }}
      emptyDir:
        medium: {{ .Values.resident.medium }}
        sizeLimit: {{ include "embag.residentSize" . }}Gi
      {{- else }}
      hostPath:
        path: {{ .Values.resident.path }}
        type: Directory
      {{- end }}
    {{- end }}
    - name: models
      {{- with .Values.models }}
      {{- if .emptyDir }}
      emptyDir:
        sizeLimit: {{ .emptyDir }}
      {{- else if .hostPath }}
      hostPath:
        path: {{ .hostPath }}
        type: Directory
      {{- else }}
      persistentVolumeClaim:
        claimName: {{ .existingClaim }}
      {{- end }}
      {{- end }}
{{- end -}}
