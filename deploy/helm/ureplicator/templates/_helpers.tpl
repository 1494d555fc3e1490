{{- define "ureplicator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "ureplicator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "ureplicator.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "ureplicator.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ureplicator.selector" -}}
app.kubernetes.io/name: {{ include "ureplicator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ureplicator.labels" -}}
{{ include "ureplicator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: ureplicator
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Arguments: root, role (controller or worker). */}}
{{- define "ureplicator.image" -}}
{{- $image := get .root.Values.image .role -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default .root.Chart.AppVersion $image.tag }}
{{- end -}}
{{- end }}

{{- define "ureplicator.onKubernetes" -}}
{{- if hasPrefix "k8s://" .Values.spark.master }}true{{ end }}
{{- end }}

{{/* Scheme by which a section of the configuration is served: config.controller (REST), or config.pages (pages of
     workers and auditors, metrics of controllers). */}}
{{- define "ureplicator.scheme" -}}
{{- ternary "https" "http" (not (empty (default dict (default dict .).tls).certificate_file)) -}}
{{- end }}

{{/* The configuration with what the chart owns: addresses, ports, and the properties of its Spark master. */}}
{{- define "ureplicator.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "controller" (merge (dict "host" "0.0.0.0" "port" 9000 "metrics_port" 9100) (default dict $config.controller) (dict "timeline" (dict "folder" "/tmp/timeline"))) -}}
{{- $access := dict "mode" .Values.access.mode -}}
{{- if eq .Values.access.mode "tokens" -}}
{{- $_ := set $access "operator_tokens_file" "/etc/ureplicator/access/operator-tokens" -}}
{{- $_ := set $access "viewer_tokens_file" "/etc/ureplicator/access/viewer-tokens" -}}
{{- with .Values.access.oidc }}{{ $_ := set $access "oidc" . }}{{ end -}}
{{- end -}}
{{- $_ := set $config.controller "access" $access -}}
{{- if eq .Values.access.mode "tokens" -}}
{{- $_ := set $config "pages" (merge (dict "token_file" "/etc/ureplicator/access/token") (default dict $config.pages)) -}}
{{- else -}}
{{- $_ := set $config "pages" (merge (dict "open" true) (default dict $config.pages)) -}}
{{- end -}}
{{- $worker := merge (dict "bind" "0.0.0.0" "port" 9010) (default dict $config.worker) -}}
{{- if .Values.spark.master -}}
{{- $spark := dict "spark.master" .Values.spark.master "spark.driver.port" 9012 "spark.driver.blockManager.port" 9013 -}}
{{- if include "ureplicator.onKubernetes" . -}}
{{- $_ := set $spark "spark.kubernetes.namespace" .Release.Namespace -}}
{{- $_ := set $spark "spark.kubernetes.container.image" (include "ureplicator.image" (dict "root" . "role" "worker")) -}}
{{- $_ := set $spark "spark.kubernetes.authenticate.executor.serviceAccountName" (printf "%s-executor" (include "ureplicator.fullname" .)) -}}
{{- $_ := set $spark (printf "spark.kubernetes.executor.secrets.%s" .Values.spark.existingSecret) "/etc/ureplicator/spark" -}}
{{- end -}}
{{- $_ := set $worker "spark" (merge $spark (default dict $worker.spark)) -}}
{{- $_ := set $worker "lifeline_port" 9011 -}}
{{- $_ := set $worker "spark_secret_file" "/etc/ureplicator/spark/spark-secret" -}}
{{- end -}}
{{- $_ := set $config "worker" $worker -}}
{{- $_ := set $config "audit" (merge (dict "host" "0.0.0.0" "port" 9020) (default dict $config.audit)) -}}
{{- toYaml $config -}}
{{- end }}

{{/* Relations between values that a schema cannot express. */}}
{{- define "ureplicator.validate" -}}
{{- $session := .Values.config.zookeeper.session_timeout_s | default 10 | float64 -}}
{{- $delay := .Values.config.controller.rebalance_delay_s | float64 -}}
{{- if and (ne $delay 0.0) (lt $delay $session) -}}
{{- fail "config.controller.rebalance_delay_s: must be 0, or at least config.zookeeper.session_timeout_s" -}}
{{- end -}}
{{- if and .Values.keda.enabled .Values.hpa.enabled -}}
{{- fail "hpa.enabled: not together with keda.enabled" -}}
{{- end -}}
{{- range $name := list "keda" "hpa" -}}
{{- $scaler := get $.Values $name -}}
{{- if and $scaler.enabled (le ($scaler.scaleDownSeconds | float64) $delay) -}}
{{- fail (printf "%s.scaleDownSeconds: must be above config.controller.rebalance_delay_s" $name) -}}
{{- end -}}
{{- if gt (int $scaler.minReplicas) (int $scaler.maxReplicas) -}}
{{- fail (printf "%s.minReplicas: above %s.maxReplicas" $name $name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.keda.enabled (not .Values.keda.prometheusAddress) -}}
{{- fail "keda.prometheusAddress: required with keda.enabled" -}}
{{- end -}}
{{- if and (eq .Values.access.mode "tokens") (not .Values.access.existingSecret) -}}
{{- fail "access.existingSecret: required with access.mode tokens" -}}
{{- end -}}
{{- if (default dict (default dict .Values.config.controller).tls).client_ca_file -}}
{{- fail "config.controller.tls.client_ca_file: the probes of Kubernetes have no certificate" -}}
{{- end -}}
{{- if (default dict (default dict .Values.config.pages).tls).client_ca_file -}}
{{- fail "config.pages.tls.client_ca_file: the probes of Kubernetes have no certificate" -}}
{{- end -}}
{{- if and .Values.spark.master (not .Values.spark.existingSecret) -}}
{{- fail "spark.existingSecret: required with spark.master" -}}
{{- end -}}
{{- include "ureplicator.validateRoutes" . -}}
{{- range $name, $properties := .Values.config.clusters -}}
{{- include "ureplicator.refuseSecrets" (dict "key" (printf "config.clusters.%s" $name) "properties" $properties) -}}
{{- end -}}
{{- range $role := list "worker" "audit" -}}
{{- $properties := default dict (default dict (get $.Values.config $role)).spark -}}
{{- include "ureplicator.refuseSecrets" (dict "key" (printf "config.%s.spark" $role) "properties" $properties) -}}
{{- end -}}
{{- end }}

{{/* What check-config would refuse of the routes, and their processes at every start. */}}
{{- define "ureplicator.validateRoutes" -}}
{{- $clusters := .Values.config.clusters -}}
{{- $seen := dict -}}
{{- range $number, $route := .Values.config.routes -}}
{{- range $end := list "source" "target" -}}
{{- $name := get $route $end | toString -}}
{{- if not (hasKey $clusters $name) -}}
{{- fail (printf "config.routes[%d].%s: unknown cluster %q; known are: %s" $number $end $name (keys $clusters | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- if eq $route.source $route.target -}}
{{- fail (printf "config.routes[%d].target: is the same cluster as the source" $number) -}}
{{- end -}}
{{- $name := printf "%s.%s" $route.source $route.target -}}
{{- if hasKey $seen $name -}}
{{- fail (printf "config.routes[%d]: duplicate route %s" $number $name) -}}
{{- end -}}
{{- $_ := set $seen $name true -}}
{{- end -}}
{{- end }}

{{/* Arguments: key (of the properties), properties. The configuration is a ConfigMap, which more may read than a
     Secret. Names of secrets are those that the program masks (config/properties.py). */}}
{{- define "ureplicator.refuseSecrets" -}}
{{- range $name, $value := .properties -}}
{{- $secret := regexMatch "(?i)password|secret|token|credential|passphrase|jaas|\\bkey\\b" $name -}}
{{- $place := regexMatch "(?i)(file|\\.location|\\.url|\\.provider|\\.class|\\.enabled)$|\\.secrets\\.|secretKeyRef" $name -}}
{{- if and $secret (not $place) $value -}}
{{- fail (printf "%s.%s: a secret must not stand in a ConfigMap: mount it by secretMounts and name its file (%s.file), or set it by extraEnv from a Secret" $.key $name $name) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Arguments: root, role (its labels), spec (the values of the pods). The fields that all pods share. */}}
{{- define "ureplicator.podFields" -}}
{{- $root := .root -}}
enableServiceLinks: false   # their variables begin with UREPLICATOR_, as overrides of settings do
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with .spec.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .spec.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .spec.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .spec.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if $root.Values.topologySpread.enabled }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ $root.Values.topologySpread.topologyKey }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "ureplicator.selector" $root | nindent 8 }}
        {{- toYaml .role | nindent 8 }}
{{- end }}
volumes:
  - name: config
    configMap: {name: {{ include "ureplicator.fullname" $root }}}
  - name: tmp
    emptyDir: {sizeLimit: {{ $root.Values.tmpVolume.sizeLimit }}}
  {{- if and $root.Values.spark.master (ne (get .role "app.kubernetes.io/component") "controller") }}
  - name: spark-secret
    secret: {secretName: {{ $root.Values.spark.existingSecret }}, defaultMode: 0440}
  {{- end }}
  {{- if eq $root.Values.access.mode "tokens" }}
  - name: access
    secret:
      secretName: {{ $root.Values.access.existingSecret }}
      defaultMode: 0440
      {{- if ne (get .role "app.kubernetes.io/component") "controller" }}
      items: [{key: token, path: token}]   # no other: it is that of a viewer
      {{- end }}
  {{- end }}
  {{- range $root.Values.secretMounts }}
  - name: secret-{{ .name }}
    secret: {secretName: {{ .secretName }}, defaultMode: 0440}
  {{- end }}
  {{- with $root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Arguments: root, command (the role's), role, resources, env (more variables, as a list). */}}
{{- define "ureplicator.containerFields" -}}
{{- $root := .root -}}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command: [ureplicator, {{ .command }}, /etc/ureplicator/config.yaml, --id, $(POD_NAME){{ if $root.Values.logJson }}, --log-json{{ end }}]
securityContext: {{- toYaml $root.Values.containerSecurityContext | nindent 2 }}
{{- with .resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
env:
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  # Every process checks the whole file, so each needs the addresses of all roles.
  {{- range list "CONTROLLER" "WORKER" "AUDIT" }}
  - name: UREPLICATOR_{{ . }}__ADVERTISE
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  {{- end }}
  - {name: HOME, value: /tmp}
  {{- with .env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumeMounts:
  - {name: config, mountPath: /etc/ureplicator/config.yaml, subPath: config.yaml, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  {{- if and $root.Values.spark.master (ne .command "controller") }}
  - {name: spark-secret, mountPath: /etc/ureplicator/spark, readOnly: true}
  {{- end }}
  {{- if eq $root.Values.access.mode "tokens" }}
  - {name: access, mountPath: /etc/ureplicator/access, readOnly: true}
  {{- end }}
  {{- range $root.Values.secretMounts }}
  - {name: secret-{{ .name }}, mountPath: /etc/ureplicator/secrets/{{ .name }}, readOnly: true}
  {{- end }}
  {{- with $root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "ureplicator.podMeta" -}}
labels:
  {{- include "ureplicator.labels" .root | nindent 2 }}
  {{- toYaml .role | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/config: {{ include "ureplicator.config" .root | sha256sum }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* Number of the first pod whose stop is taken for scaling down; empty: of none. */ -}}
{{- define "ureplicator.leaveFrom" -}}
{{- if hasKey .spec "leaveFrom" -}}
{{- int .spec.leaveFrom -}}
{{- else if .root.Values.keda.enabled -}}
{{- int .root.Values.keda.minReplicas -}}
{{- else if .root.Values.hpa.enabled -}}
{{- int .root.Values.hpa.minReplicas -}}
{{- end -}}
{{- end }}
