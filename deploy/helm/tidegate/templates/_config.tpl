{{/* The ports of both configurations: 4317 and 4318 are those of OTLP, and 4319 is the next one. 9464 is the one of
OpenTelemetry's Prometheus exporter. 8888 and 13133 are those of the OpenTelemetry Collector for its own metrics and its
health. 8080 is the default of `admin`. 4320 is the port of a cluster without a broker, in the examples of docs/cluster.md.

The memory limit is 80 %, as docs/processors.md advises. The rest is for memory that grows between two checks, 1 s apart. */}}

{{/* The configuration of the agents. A queue of 60 totals lasts for 1 min at the default interval: older totals are
superseded. The byte limits follow from the memory limit (`agent.resources`). */}}
{{- define "tidegate.agentConfig" -}}
{{- $agent := .Values.agent -}}
{{- $cluster := .Values.cluster -}}
{{- $feedsVendors := include "tidegate.agentsFeedVendors" . -}}
{{- if $cluster.enabled }}{{ include "tidegate.checkCluster" . }}{{ end -}}
{{- $receivers := list -}}
{{- $vendorReceivers := list -}}
{{- if $agent.nixl.enabled }}{{ $receivers = append $receivers "nixl" }}{{ $vendorReceivers = append $vendorReceivers "nixl" }}{{ end -}}
{{- if $agent.cells.enabled }}{{ $receivers = append $receivers "shm" }}{{ $vendorReceivers = append $vendorReceivers "shm/vendors" }}{{ end -}}
{{- if $agent.otlp.enabled }}{{ $receivers = append $receivers "otlp" }}{{ $vendorReceivers = append $vendorReceivers "otlp" }}{{ end -}}
{{- if not $receivers }}{{ fail "agent: nixl, cells and otlp are all disabled: enable one of them, or set agent.enabled: false" }}{{ end -}}
{{- $composites := list -}}
{{- if $cluster.enabled }}{{ range .Values.gateway.composites }}{{ if include "tidegate.travels" . }}{{ $composites = append $composites (omit . "thresholds") }}{{ end }}{{ end }}{{ end -}}
receivers:
  {{- if $agent.nixl.enabled }}
  nixl: {directories: [{{ $agent.nixl.hostPath | quote }}, {{ printf "%s/*" $agent.nixl.hostPath | quote }}], hostname: "${env:NODE_NAME}"}
  {{- end }}
  {{- if $agent.cells.enabled }}
  shm: {directories: [{{ printf "%s/*" $agent.cells.hostPath | quote }}], poll_interval: {{ $agent.interval }}}
  {{- if $feedsVendors }}
  shm/vendors: {directories: [{{ printf "%s/*" $agent.cells.hostPath | quote }}], poll_interval: {{ .Values.vendorInterval }}, fold: false}
  {{- end }}
  {{- end }}
  {{- if $agent.otlp.enabled }}
  otlp:
    protocols:
      grpc: {endpoint: "0.0.0.0:4317"}
      http: {endpoint: "0.0.0.0:4318"}
  {{- end }}
processors:
  memory_limiter: {check_interval: 1s, limit_percentage: 80}
  # Tells the series of the nodes apart, and spreads them over the replicas.
  resource:
    attributes:
      - {key: k8s.node.name, value: "${env:NODE_NAME}", action: upsert}
      - {key: service.instance.id, value: "${env:NODE_NAME}", action: insert}
  {{- with $composites }}
  composite:
    composites:
      {{- toYaml . | nindent 6 }}
  {{- end }}
  aggregate: {rules: nixl, interval: {{ $agent.interval }}}
  {{- if $feedsVendors }}
  aggregate/vendors: {rules: nixl, interval: {{ .Values.vendorInterval }}}
  {{- end }}
exporters:
  {{- $exporters := list }}
  {{- if $cluster.enabled }}
  {{- $exporters = append $exporters "partials" }}
  partials: {cluster: cluster, producer: "${env:NODE_NAME}", interval: {{ $agent.interval }}}
  {{- else }}
  # Every replica gets all totals. A replica that is down does not delay the others: the next totals include those dropped.
  {{- range $ordinal := until (int .Values.gateway.replicas) }}
  {{- $exporters = append $exporters (printf "otlp/gateway-%d" $ordinal) }}
  otlp/gateway-{{ $ordinal }}:
    endpoint: {{ include "tidegate.replica" (dict "root" $ "ordinal" $ordinal "port" 4317) }}
    tls: {insecure: true}
    sending_queue: {queue_size: 60, max_bytes: 32MiB, on_full: drop}
  {{- end }}
  {{- end }}
  {{- if $feedsVendors }}
  # One replica sends the series of a resource to the vendors. Its queue waits for it if it is down.
  loadbalancing:
    routing_key: resource
    resolver:
      static:
        hostnames:
          {{- range $ordinal := until (int .Values.gateway.replicas) }}
          - {{ include "tidegate.replica" (dict "root" $ "ordinal" $ordinal "port" 4319) }}
          {{- end }}
    protocol: {otlp: {tls: {insecure: true}}}
    sending_queue: {max_bytes: 64MiB, on_full: drop}
  {{- end }}
extensions:
  health_check: {endpoint: "0.0.0.0:13133"}
  # For `tidegate query` and `tidegate explain` in the pod.
  admin: {endpoint: "127.0.0.1:8080", history: {enabled: false}}
  {{- if $cluster.enabled }}
  {{- include "tidegate.clusterExtension" (dict "root" .) | nindent 2 }}
  {{- end }}
service:
  extensions: [health_check, admin{{ if $cluster.enabled }}, cluster{{ end }}]
  telemetry:
    metrics: {readers: [{pull: {exporter: {prometheus: {host: 0.0.0.0, port: 8888}}}}]}
  pipelines:
    metrics:
      receivers: [{{ join ", " $receivers }}]
      {{- if $cluster.enabled }}
      # `resource` is first: it would hide the tables of the others from `partials`.
      processors: [memory_limiter, resource, {{ if $composites }}composite, {{ end }}aggregate]
      {{- else }}
      processors: [memory_limiter, aggregate, resource]
      {{- end }}
      exporters: [{{ join ", " $exporters }}]
    {{- if $feedsVendors }}
    metrics/vendors:
      receivers: [{{ join ", " $vendorReceivers }}]
      processors: [memory_limiter, aggregate/vendors, resource]
      exporters: [loadbalancing]
    {{- end }}
{{- end }}

{{/* The configuration of the gateway. `batch` joins the pushes of agents for vendors. 5 s are half of the default
`vendorInterval`, so a request has points of up to half of the agents. */}}
{{- define "tidegate.gatewayConfig" -}}
{{- $gateway := .Values.gateway -}}
{{- $cluster := .Values.cluster -}}
{{- if $cluster.enabled }}{{ include "tidegate.checkCluster" . }}{{ end -}}
{{- $composites := list -}}
{{- $merged := list -}}
{{- range $gateway.composites -}}
{{- if and $cluster.enabled (include "tidegate.travels" .) }}{{ $merged = append $merged . }}{{ else }}{{ $composites = append $composites . }}{{ end -}}
{{- end -}}
{{- $fed := list -}}
{{- $led := list -}}
{{- range .Values.vendors -}}
{{- $id := printf "otlphttp/%s" .name -}}
{{- if has $id (concat $fed $led) }}{{ fail (printf "vendors: %s has two entries: give each a name of its own" .name) }}{{ end -}}
{{- if include "tidegate.isLed" (dict "root" $ "vendor" .) }}{{ $led = append $led $id }}{{ else }}{{ $fed = append $fed $id }}{{ end -}}
{{- end -}}
receivers:
  {{- if $cluster.enabled }}
  partials:
    cluster: cluster
    {{- if $led }}
    # The time between two points of a series for the vendors. Readers see each change at once.
    interval: {{ .Values.vendorInterval }}
    {{- end }}
    {{- with $cluster.expect }}
    expect: {{ toJson . }}
    {{- end }}
    {{- if $cluster.expectAgents }}
    expect_from:
      daemonset: "{{ .Release.Namespace }}/{{ include "tidegate.fullname" . }}-agent"
      label_selector: "app.kubernetes.io/instance={{ .Release.Name }},app.kubernetes.io/component=agent"
    {{- end }}
    {{- with $merged }}
    composites:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- else }}
  otlp: {protocols: {grpc: {endpoint: "0.0.0.0:4317"}}}
  {{- end }}
  {{- if $fed }}
  otlp/vendors: {protocols: {grpc: {endpoint: "0.0.0.0:4319"}}}
  {{- end }}
processors:
  memory_limiter: {check_interval: 1s, limit_percentage: 80}
  {{- with $composites }}
  composite:
    composites:
      {{- toYaml . | nindent 6 }}
  {{- end }}
  {{- if $fed }}
  batch: {timeout: 5s}
  {{- end }}
exporters:
  prometheus: {endpoint: "0.0.0.0:9464"}
  {{- if .Values.vendors }}
  # A full queue drops and counts, so that a vendor that is down does not delay the others.
  {{- end }}
  {{- $isDurable := false }}
  {{- range .Values.vendors }}
  otlphttp/{{ .name }}:
    endpoint: {{ .endpoint | quote }}
    {{- with .vendor }}
    vendor: {{ . }}
    {{- end }}
    {{- if and .secretRef .vendor }}
    api_key: "${env:{{ include "tidegate.keyVariable" . }}}"
    {{- else if .secretRef }}
    headers: { {{- .header | quote }}: "${env:{{ include "tidegate.keyVariable" . }}}"}
    {{- end }}
    {{- if include "tidegate.isLed" (dict "root" $ "vendor" .) }}
    # One gateway sends at a time.
    only_leader: cluster
    {{- end }}
    {{- if include "tidegate.isDurable" (dict "root" $ "vendor" .) }}
    {{- $isDurable = true }}
    sending_queue: {storage: file_storage, on_full: drop}
    {{- else }}
    sending_queue: {on_full: drop}
    {{- end }}
  {{- end }}
extensions:
  health_check: {endpoint: "0.0.0.0:13133"}
  {{- if $cluster.enabled }}
  # A gateway that starts gets the history of queries from another one.
  admin:
    endpoint: "0.0.0.0:8080"
    history: {peers: {endpoints: ["http://{{ include "tidegate.fullname" . }}-gateway-pods.{{ .Release.Namespace }}.svc:8080"]}}
  {{- else }}
  admin: {endpoint: "0.0.0.0:8080"}
  {{- end }}
  {{- if $cluster.enabled }}
  {{- include "tidegate.clusterExtension" (dict "root" . "serves" true) | nindent 2 }}
  {{- end }}
  {{- if $isDurable }}
  file_storage: {directory: /var/lib/tidegate/queues, create_directory: true, max_size: {{ $gateway.storage.maxSize }}}
  {{- end }}
service:
  extensions: [health_check, admin{{ if $cluster.enabled }}, cluster{{ end }}{{ if $isDurable }}, file_storage{{ end }}]
  telemetry:
    metrics: {readers: [{pull: {exporter: {prometheus: {host: 0.0.0.0, port: 8888}}}}]}
  pipelines:
    metrics:
      receivers: [{{ if $cluster.enabled }}partials{{ else }}otlp{{ end }}]
      processors: [memory_limiter{{ if $composites }}, composite{{ end }}]
      exporters: [prometheus]
    {{- if $led }}
    metrics/led:
      receivers: [partials]
      processors: [memory_limiter]
      exporters: [{{ join ", " $led }}]
    {{- end }}
    {{- if $fed }}
    metrics/vendors:
      receivers: [otlp/vendors]
      processors: [memory_limiter, batch]
      exporters: [{{ join ", " $fed }}]
    {{- end }}
{{- end }}
