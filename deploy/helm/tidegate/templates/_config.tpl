{{/* The ports of both configurations: 4317 and 4318 are those of OTLP, and 4319 is the next one. 9464 is the one of
OpenTelemetry's Prometheus exporter. 8888 and 13133 are those of the OpenTelemetry Collector for its own metrics and its
health. 8080 is the default of `admin`.

The memory limit is 80 %, as docs/processors.md advises. The rest is for memory that grows between two checks, 1 s apart. */}}

{{/* The configuration of the agents. A queue of 60 totals lasts for 1 min at the default interval: older totals are
superseded. The byte limits follow from the memory limit (`agent.resources`). */}}
{{- define "tidegate.agentConfig" -}}
{{- $agent := .Values.agent -}}
{{- $receivers := list -}}
{{- $vendorReceivers := list -}}
{{- if $agent.nixl.enabled }}{{ $receivers = append $receivers "nixl" }}{{ $vendorReceivers = append $vendorReceivers "nixl" }}{{ end -}}
{{- if $agent.cells.enabled }}{{ $receivers = append $receivers "shm" }}{{ $vendorReceivers = append $vendorReceivers "shm/vendors" }}{{ end -}}
{{- if $agent.otlp.enabled }}{{ $receivers = append $receivers "otlp" }}{{ $vendorReceivers = append $vendorReceivers "otlp" }}{{ end -}}
{{- if not $receivers }}{{ fail "agent: nixl, cells and otlp are all disabled: enable one of them, or set agent.enabled: false" }}{{ end -}}
receivers:
  {{- if $agent.nixl.enabled }}
  nixl: {directories: [{{ $agent.nixl.hostPath | quote }}], hostname: "${env:NODE_NAME}"}
  {{- end }}
  {{- if $agent.cells.enabled }}
  shm: {directories: [{{ printf "%s/*" $agent.cells.hostPath | quote }}], poll_interval: {{ $agent.interval }}}
  {{- if .Values.vendors }}
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
  aggregate: {rules: nixl, interval: {{ $agent.interval }}}
  {{- if .Values.vendors }}
  aggregate/vendors: {rules: nixl, interval: {{ .Values.vendorInterval }}}
  {{- end }}
exporters:
  # Every replica gets all totals. A replica that is down does not delay the others: the next totals include those dropped.
  {{- $exporters := list }}
  {{- range $ordinal := until (int .Values.gateway.replicas) }}
  {{- $exporters = append $exporters (printf "otlp/gateway-%d" $ordinal) }}
  otlp/gateway-{{ $ordinal }}:
    endpoint: {{ include "tidegate.replica" (dict "root" $ "ordinal" $ordinal "port" 4317) }}
    tls: {insecure: true}
    sending_queue: {queue_size: 60, max_bytes: 32MiB, on_full: drop}
  {{- end }}
  {{- if .Values.vendors }}
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
service:
  extensions: [health_check, admin]
  telemetry:
    metrics: {readers: [{pull: {exporter: {prometheus: {host: 0.0.0.0, port: 8888}}}}]}
  pipelines:
    metrics:
      receivers: [{{ join ", " $receivers }}]
      processors: [memory_limiter, aggregate, resource]
      exporters: [{{ join ", " $exporters }}]
    {{- if .Values.vendors }}
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
receivers:
  otlp: {protocols: {grpc: {endpoint: "0.0.0.0:4317"}}}
  {{- if .Values.vendors }}
  otlp/vendors: {protocols: {grpc: {endpoint: "0.0.0.0:4319"}}}
  {{- end }}
processors:
  memory_limiter: {check_interval: 1s, limit_percentage: 80}
  {{- with $gateway.composites }}
  composite:
    composites:
      {{- toYaml . | nindent 6 }}
  {{- end }}
  {{- if .Values.vendors }}
  batch: {timeout: 5s}
  {{- end }}
exporters:
  prometheus: {endpoint: "0.0.0.0:9464"}
  {{- if .Values.vendors }}
  # A full queue drops and counts, so that a vendor that is down does not delay the others.
  {{- end }}
  {{- $vendors := list }}
  {{- $isDurable := false }}
  {{- range .Values.vendors }}
  {{- $id := printf "otlphttp/%s" .name }}
  {{- if has $id $vendors }}{{ fail (printf "vendors: %s has two entries: give each a name of its own" .name) }}{{ end }}
  {{- $vendors = append $vendors $id }}
  {{ $id }}:
    endpoint: {{ .endpoint | quote }}
    {{- with .vendor }}
    vendor: {{ . }}
    {{- end }}
    {{- if and .secretRef .vendor }}
    api_key: "${env:{{ include "tidegate.keyVariable" . }}}"
    {{- else if .secretRef }}
    headers: { {{- .header | quote }}: "${env:{{ include "tidegate.keyVariable" . }}}"}
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
  admin: {endpoint: "0.0.0.0:8080"}
  {{- if $isDurable }}
  file_storage: {directory: /var/lib/tidegate/queues, create_directory: true, max_size: {{ $gateway.storage.maxSize }}}
  {{- end }}
service:
  extensions: [health_check, admin{{ if $isDurable }}, file_storage{{ end }}]
  telemetry:
    metrics: {readers: [{pull: {exporter: {prometheus: {host: 0.0.0.0, port: 8888}}}}]}
  pipelines:
    metrics:
      receivers: [otlp]
      processors: [memory_limiter{{ if $gateway.composites }}, composite{{ end }}]
      exporters: [prometheus]
    {{- if .Values.vendors }}
    metrics/vendors:
      receivers: [otlp/vendors]
      processors: [memory_limiter, batch]
      exporters: [{{ join ", " $vendors }}]
    {{- end }}
{{- end }}
