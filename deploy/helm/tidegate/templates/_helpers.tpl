{{/* The name of the objects. A name in Kubernetes has at most 63 bytes: 40 leave enough for `-gateway-pods` and for the
hash that a StatefulSet adds. */}}
{{- define "tidegate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "tidegate.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "tidegate.labels" -}}
{{ include "tidegate.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The service account of a component. If the chart makes it, the agents have one of their own, with fewer rights. */}}
{{- define "tidegate.serviceAccount" -}}
{{- $given := .root.Values.serviceAccount -}}
{{- if $given.create -}}
{{- $name := default (include "tidegate.fullname" .root) $given.name -}}
{{- ternary (printf "%s-agent" $name) $name (eq .component "agent") -}}
{{- else -}}
{{- default "default" $given.name -}}
{{- end -}}
{{- end }}

{{- define "tidegate.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The environment variable with the key of a vendor. */}}
{{- define "tidegate.keyVariable" -}}
{{- printf "VENDOR_KEY_%s" (.name | upper | replace "-" "_") -}}
{{- end }}

{{/* Whether a vendor's queue is on disk: the vendor's own choice, or else with gateway.storage. "true" or "". */}}
{{- define "tidegate.isDurable" -}}
{{- $storage := .root.Values.gateway.storage.enabled -}}
{{- if dig "durableQueue" $storage .vendor -}}
{{- if not $storage -}}
{{- fail (printf "vendors: %s has durableQueue: true, but gateway.storage.enabled is false: enable the storage, or set durableQueue: false" .vendor.name) -}}
{{- end -}}
true
{{- end -}}
{{- end }}

{{/* The address of a replica's pod. */}}
{{- define "tidegate.replica" -}}
{{- $name := include "tidegate.fullname" .root -}}
{{- printf "%s-gateway-%d.%s-gateway-pods.%s.svc:%d" $name (int .ordinal) $name .root.Release.Namespace (int .port) -}}
{{- end }}

{{/* A large number of a values file is a float, which templates print with an exponent. */}}
{{- define "tidegate.podSecurity" -}}
runAsUser: {{ int64 .user }}
runAsGroup: {{ int64 .user }}
runAsNonRoot: {{ ne (int64 .user) 0 }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tidegate.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The arguments: extraConfig is a second file, which tidegate merges over the first. With `reload`, tidegate reads both again
when the kubelet has updated them. The kubelet updates a mounted directory, and not a mount with a subPath. */}}
{{- define "tidegate.arguments" -}}
args:
  - run
  - --config=/etc/tidegate/config.yaml
  {{- if and .extraConfig (not .existingConfigMap) }}
  - --config=/etc/tidegate/extra.yaml
  {{- end }}
  {{- if .reload }}
  - --watch-config
  {{- end }}
{{- end }}

{{/* The gateway answers 200 while it takes data. A failing vendor does not change this: a restart would not help. It would not
help a replica that waits for the store of its cluster either, so liveness has a path of its own.
A start may take 2 min (60 x 2 s), because the gateway reads the queues on its volume. A pod without an answer gets no reads
after 15 s (3 x 5 s), and Kubernetes restarts it after 1 min (6 x 10 s). A busy node answers late, so a liveness probe may take 5 s. */}}
{{- define "tidegate.probes" -}}
startupProbe:
  httpGet: {path: /-/healthy, port: health}
  periodSeconds: 2
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /, port: health}
  periodSeconds: 5
livenessProbe:
  httpGet: {path: /-/healthy, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{/* A ConfigMap of the files that tidegate merges. JSON is YAML, and keeps large integers as they are. */}}
{{- define "tidegate.files" -}}
config.yaml: |
  {{- .config | nindent 2 }}
{{- if .extraConfig }}
extra.yaml: |
  {{- .extraConfig | toPrettyJson | nindent 2 }}
{{- end }}
{{- end }}

{{/* The text of a file of `files/`. With `docsUrl`, the paths of documents in it are addresses. `runbook_url` is the annotation that
Grafana and others show as a link, so a path is not called so. */}}
{{- define "tidegate.linked" -}}
{{- if .root.Values.docsUrl -}}
{{- .text | replace "runbook: docs/" "runbook_url: docs/" | replace "docs/" (printf "%s/" .root.Values.docsUrl) -}}
{{- else -}}
{{- .text -}}
{{- end -}}
{{- end }}

{{/* Refuses a ScaledObject that KEDA or the gateway would refuse, or that asks for a composite which no gateway has. */}}
{{- define "tidegate.checkScaledObject" -}}
{{- $scaled := .scaled -}}
{{- $gateway := .root.Values.gateway -}}
{{- $asks := list -}}
{{- range $key := list "composite" "query" "signals" }}{{ if get $scaled $key }}{{ $asks = append $asks $key }}{{ end }}{{ end -}}
{{- if ne (len $asks) 1 }}{{ fail (printf "scaledObjects: %s: set one of composite, query and signals" $scaled.name) }}{{ end -}}
{{- if and $scaled.labels (not $scaled.composite) }}{{ fail (printf "scaledObjects: %s: labels select a group of composite: remove them, and write {label=value} into query or signals" $scaled.name) }}{{ end -}}
{{- if eq (default "external-push" $scaled.trigger) "prometheus" -}}
{{- if not $scaled.query }}{{ fail (printf "scaledObjects: %s: trigger: prometheus takes only query" $scaled.name) }}{{ end -}}
{{- $cures := dict "combine" "remove it, and write the aggregation into query, such as sum(...)" "metricName" "remove it, because KEDA names the metric" "onPartial" "set trigger: external or external-push" "whenGone" "set trigger: external or external-push" -}}
{{- range $key, $cure := $cures -}}
{{- if get $scaled $key }}{{ fail (printf "scaledObjects: %s: %s has no effect with trigger: prometheus: %s" $scaled.name $key $cure) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and $scaled.signals $scaled.value }}{{ fail (printf "scaledObjects: %s: each of signals has its own target: remove value" $scaled.name) }}{{ end -}}
{{- if not (or $scaled.signals $scaled.value) }}{{ fail (printf "scaledObjects: %s: set value, what a replica should have" $scaled.name) }}{{ end -}}
{{- if and $scaled.value (eq (float64 $scaled.value) 0.0) }}{{ fail (printf "scaledObjects: %s: value must be greater than zero" $scaled.name) }}{{ end -}}
{{- if and (gt (int $scaled.minReplicas) (int $scaled.maxReplicas)) }}{{ fail (printf "scaledObjects: %s: minReplicas is above maxReplicas" $scaled.name) }}{{ end -}}
{{- if not (or $gateway.existingConfigMap $gateway.extraConfig) -}}
{{- $declared := list -}}
{{- range $gateway.composites }}{{ $declared = append $declared .name }}{{ end -}}
{{- $named := list -}}
{{- with $scaled.composite }}{{ $named = append $named . }}{{ end -}}
{{- range $scaled.signals }}{{ $named = append $named (regexFind "^[A-Za-z_][A-Za-z0-9_:]*" .) }}{{ end -}}
{{- range $named -}}
{{- if not (has . $declared) }}{{ fail (printf "scaledObjects: %s asks for the composite %s, which gateway.composites does not declare" $scaled.name .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}
