{{/* A cluster (docs/cluster.md). The agents publish totals in a store, and the gateways show them. */}}

{{/* Refuses values that contradict each other, with the value to change. */}}
{{- define "tidegate.checkCluster" -}}
{{- $cluster := .Values.cluster -}}
{{- $name := include "tidegate.clusterName" . -}}
{{- if and $cluster.expectAgents (not .Values.agent.enabled) }}{{ fail "cluster.expectAgents needs agents: set agent.enabled: true, or expectAgents: false" }}{{ end -}}
{{- if gt (len $name) 64 }}{{ fail (printf "cluster.name: %s has more than 64 characters: set a shorter name" $name) }}{{ end -}}
{{- if eq $cluster.engine "direct" -}}
{{- $budget := .Values.gateway.podDisruptionBudget -}}
{{- if not (has (int .Values.gateway.replicas) (list 2 3)) }}{{ fail "cluster.engine: direct keeps the store in the gateways: set gateway.replicas to 2 or 3" }}{{ end -}}
{{- if not (and $budget.enabled (eq (toString $budget.maxUnavailable) "1")) }}{{ fail "cluster.engine: direct loses totals if all gateways end at once: enable gateway.podDisruptionBudget with maxUnavailable: 1" }}{{ end -}}
{{- else if eq $cluster.engine "nats" -}}
{{- $nats := $cluster.nats -}}
{{- if not $nats.servers }}{{ fail "cluster.nats.servers: name at least one server, such as nats://nats:4222" }}{{ end -}}
{{- if and $nats.credentialsSecretRef $nats.userSecret.name }}{{ fail "cluster.nats: set credentialsSecretRef or userSecret, not both" }}{{ end -}}
{{- else -}}
{{- $kafka := $cluster.kafka -}}
{{- $sasl := $kafka.sasl -}}
{{- if not $kafka.brokers }}{{ fail "cluster.kafka.brokers: name at least one broker, such as kafka:9092" }}{{ end -}}
{{- $isBearer := eq (toString $sasl.mechanism) "OAUTHBEARER" -}}
{{- if and $isBearer $sasl.userSecret.name }}{{ fail "cluster.kafka.sasl: OAUTHBEARER has no user: remove userSecret" }}{{ end -}}
{{- if and $isBearer (not $sasl.tokenSecretRef) (not $sasl.tokenAudience) }}{{ fail "cluster.kafka.sasl: OAUTHBEARER needs tokenSecretRef, the Secret with the token, or tokenAudience" }}{{ end -}}
{{- if and $sasl.tokenSecretRef $sasl.tokenAudience }}{{ fail "cluster.kafka.sasl: set tokenSecretRef or tokenAudience, not both" }}{{ end -}}
{{- if and (or $sasl.tokenSecretRef $sasl.tokenAudience) (not $isBearer) }}{{ fail "cluster.kafka.sasl: a token has no effect: set mechanism: OAUTHBEARER" }}{{ end -}}
{{- if and $sasl.mechanism (not $isBearer) (not $sasl.userSecret.name) }}{{ fail (printf "cluster.kafka.sasl: %s needs userSecret.name, the Secret with the user and the password" $sasl.mechanism) }}{{ end -}}
{{- if and $sasl.userSecret.name (not $sasl.mechanism) }}{{ fail "cluster.kafka.sasl: userSecret needs a mechanism, such as SCRAM-SHA-512" }}{{ end -}}
{{- end -}}
{{- with (index $cluster $cluster.engine).tls -}}
{{- if and .caSecretRef (not .enabled) }}{{ fail (printf "cluster.%s.tls: caSecretRef has no effect without TLS: set enabled: true" $cluster.engine) }}{{ end -}}
{{- end -}}
{{- range .Values.gateway.composites -}}
{{- range .thresholds -}}
{{- if .webhook }}{{ fail "gateway.composites: each gateway of a cluster would call the webhook of a threshold: remove it, and watch the admin API" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "tidegate.clusterName" -}}
{{- default (printf "%s-%s" .Release.Namespace (include "tidegate.fullname" .)) .Values.cluster.name -}}
{{- end }}

{{/* Whether the gateways keep the store themselves: "true" or "". */}}
{{- define "tidegate.isDirect" -}}
{{- if and .Values.cluster.enabled (eq .Values.cluster.engine "direct") }}true{{ end -}}
{{- end }}

{{/* The name of the Lease of the leader. */}}
{{- define "tidegate.leaderLease" -}}
{{- printf "%s-leader" (include "tidegate.fullname" .) -}}
{{- end }}

{{/* Whether the gateways call the Kubernetes API for the cluster: "true" or "". */}}
{{- define "tidegate.clusterCallsApi" -}}
{{- if and .Values.cluster.enabled (or .Values.cluster.expectAgents .Values.cluster.leaderLease) }}true{{ end -}}
{{- end }}

{{/* The extension. `serves`: for a gateway. */}}
{{- define "tidegate.clusterExtension" -}}
{{- $cluster := .root.Values.cluster -}}
{{- $name := printf "%s-gateway-pods" (include "tidegate.fullname" .root) -}}
cluster:
  name: {{ include "tidegate.clusterName" .root | quote }}
  {{- if and .serves $cluster.leaderLease }}
  leader: {lease: {{ printf "%s/%s" .root.Release.Namespace (include "tidegate.leaderLease" .root) | quote }}}
  {{- end }}
  partitions: {{ $cluster.partitions }}
  engine:
    {{- if eq $cluster.engine "direct" }}
    direct:
      dns: "{{ $name }}.{{ .root.Release.Namespace }}.svc:4320"
      {{- if $cluster.direct.tokenSecretRef }}
      token: "${env:CLUSTER_TOKEN}"
      {{- end }}
      {{- if .serves }}
      serve: {endpoint: "0.0.0.0:4320", name: "${env:POD_NAME}", max_bytes: {{ $cluster.direct.maxBytes }}}
      {{- end }}
    {{- else if eq $cluster.engine "nats" }}
    nats:
      servers: {{ toJson $cluster.nats.servers }}
      replicas: {{ $cluster.nats.streamReplicas }}
      {{- if $cluster.nats.credentialsSecretRef }}
      credentials_file: /etc/tidegate-cluster/user.creds
      {{- end }}
      {{- if $cluster.nats.userSecret.name }}
      username: "${env:CLUSTER_USERNAME}"
      password: "${env:CLUSTER_PASSWORD}"
      {{- end }}
      {{- include "tidegate.clusterTls" $cluster.nats.tls | nindent 6 }}
    {{- else }}
    kafka:
      brokers: {{ toJson $cluster.kafka.brokers }}
      replication_factor: {{ $cluster.kafka.replicationFactor }}
      {{- if $cluster.kafka.sasl.mechanism }}
      sasl:
        mechanism: {{ $cluster.kafka.sasl.mechanism }}
        {{- if eq $cluster.kafka.sasl.mechanism "OAUTHBEARER" }}
        token_file: /etc/tidegate-cluster/token
        {{- else }}
        username: "${env:CLUSTER_USERNAME}"
        password: "${env:CLUSTER_PASSWORD}"
        {{- end }}
      {{- end }}
      {{- include "tidegate.clusterTls" $cluster.kafka.tls | nindent 6 }}
    {{- end }}
{{- end }}

{{- define "tidegate.clusterTls" -}}
{{- if .enabled -}}
tls: {{ if .caSecretRef }}{ca_file: /etc/tidegate-cluster/ca.pem}{{ else }}{}{{ end }}
{{- end -}}
{{- end }}

{{/* The environment variables with the secrets of the engine, as a list. */}}
{{- define "tidegate.clusterEnv" -}}
{{- $cluster := .Values.cluster -}}
{{- if $cluster.enabled -}}
{{- $user := dict -}}
{{- if eq $cluster.engine "nats" }}{{ $user = $cluster.nats.userSecret }}{{ end -}}
{{- if eq $cluster.engine "kafka" }}{{ $user = $cluster.kafka.sasl.userSecret }}{{ end -}}
{{- if $user.name }}
- name: CLUSTER_USERNAME
  valueFrom: {secretKeyRef: {name: {{ $user.name }}, key: {{ $user.usernameKey }}}}
- name: CLUSTER_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ $user.name }}, key: {{ $user.passwordKey }}}}
{{- end }}
{{- if and (include "tidegate.isDirect" .) $cluster.direct.tokenSecretRef }}
- name: CLUSTER_TOKEN
  valueFrom: {secretKeyRef: {name: {{ $cluster.direct.tokenSecretRef.name }}, key: {{ $cluster.direct.tokenSecretRef.key }}}}
{{- end }}
{{- end -}}
{{- end }}

{{/* The files of the engine, as sources of a projected volume. */}}
{{- define "tidegate.clusterFiles" -}}
{{- $cluster := .Values.cluster -}}
{{- if and $cluster.enabled (ne $cluster.engine "direct") -}}
{{- $options := index $cluster $cluster.engine -}}
{{- with $options.credentialsSecretRef }}
- secret: {name: {{ .name }}, items: [{key: {{ .key }}, path: user.creds}]}
{{- end }}
{{- with $options.sasl }}
{{- with .tokenSecretRef }}
- secret: {name: {{ .name }}, items: [{key: {{ .key }}, path: token}]}
{{- end }}
{{- with .tokenAudience }}
- serviceAccountToken: {audience: {{ . | quote }}, path: token}
{{- end }}
{{- end }}
{{- with $options.tls.caSecretRef }}
- secret: {name: {{ .name }}, items: [{key: {{ .key }}, path: ca.pem}]}
{{- end }}
{{- end -}}
{{- end }}

{{/* Whether the windows of a composite travel from agents to gateways: "true" or "". The gateways compute the others from the
merged series. */}}
{{- define "tidegate.travels" -}}
{{- if not (or .expr (eq (toString .function) "last") (and .across (ne .across "pool"))) }}true{{ end -}}
{{- end }}

{{/* Whether the leader of the gateways sends to a vendor: "true" or "". Agents feed vendors that take deltas, as they do without
a cluster. */}}
{{- define "tidegate.isLed" -}}
{{- $takesDeltas := has .vendor.vendor (list "datadog" "dynatrace" "newrelic" "splunk") -}}
{{- if and .root.Values.cluster.enabled (not $takesDeltas) }}true{{ end -}}
{{- end }}

{{/* Whether agents send to vendors through a gateway: "true" or "". */}}
{{- define "tidegate.agentsFeedVendors" -}}
{{- $fed := "" -}}
{{- range .Values.vendors }}{{ if not (include "tidegate.isLed" (dict "root" $ "vendor" .)) }}{{ $fed = "true" }}{{ end }}{{ end -}}
{{- $fed -}}
{{- end }}
