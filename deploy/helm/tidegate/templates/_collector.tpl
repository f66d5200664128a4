{{/* Values of the official chart opentelemetry-collector (docs/collector.md). Names, labels and selectors are those of that
chart, so that `helm upgrade` of its release replaces the pods in place, and senders keep their addresses. */}}

{{/* The defaults of that chart, without the ports and receivers of Jaeger and Zipkin, which tidegate does not have. */}}
{{- define "tidegate.collectorDefaults" -}}
mode: ""
replicaCount: 1
revisionHistoryLimit: 10
config:
  receivers:
    otlp:
      protocols:
        grpc: {endpoint: "${env:MY_POD_IP}:4317"}
        http: {endpoint: "${env:MY_POD_IP}:4318"}
    prometheus:
      config:
        scrape_configs:
          - job_name: opentelemetry-collector
            scrape_interval: 10s
            static_configs: [{targets: ["${env:MY_POD_IP}:8888"]}]
  processors:
    batch: {}
    memory_limiter: {check_interval: 5s, limit_percentage: 80, spike_limit_percentage: 25}
  exporters:
    debug: {}
  extensions:
    health_check: {endpoint: "${env:MY_POD_IP}:13133"}
  service:
    extensions: [health_check]
    telemetry:
      metrics: {readers: [{pull: {exporter: {prometheus: {host: "${env:MY_POD_IP}", port: 8888}}}}]}
    pipelines:
      logs: {receivers: [otlp], processors: [memory_limiter, batch], exporters: [debug]}
      metrics: {receivers: [otlp, prometheus], processors: [memory_limiter, batch], exporters: [debug]}
      traces: {receivers: [otlp], processors: [memory_limiter, batch], exporters: [debug]}
ports:
  otlp: {enabled: true, containerPort: 4317, servicePort: 4317, hostPort: 4317, protocol: TCP, appProtocol: grpc}
  otlp-http: {enabled: true, containerPort: 4318, servicePort: 4318, hostPort: 4318, protocol: TCP}
  metrics: {enabled: false, containerPort: 8888, servicePort: 8888, protocol: TCP}
service: {type: ClusterIP, annotations: {}}
configMap: {create: true, existingName: ""}
serviceAccount: {create: true, name: "", annotations: {}}
clusterRole: {create: false, name: "", annotations: {}, rules: [], clusterRoleBinding: {name: "", annotations: {}}}
command: {extraArgs: []}
rollout: {strategy: RollingUpdate, rollingUpdate: {}}
statefulset: {volumeClaimTemplates: [], podManagementPolicy: Parallel}
podDisruptionBudget: {enabled: false}
autoscaling: {enabled: false, minReplicas: 1, maxReplicas: 10, targetCPUUtilizationPercentage: 80, behavior: {}}
serviceMonitor: {enabled: false, metricsEndpoints: [{port: metrics}], extraLabels: {}}
podMonitor: {enabled: false, metricsEndpoints: [{port: metrics}], extraLabels: {}}
livenessProbe: {httpGet: {path: /, port: 13133}}
readinessProbe: {httpGet: {path: /, port: 13133}}
{{- end }}

{{/* `base` with `over` merged over it, as Helm merges values: null removes a key. The functions of templates do not replace a
value by false, 0 or an empty one. */}}
{{- define "tidegate.merged" -}}
{{- $result := deepCopy .base -}}
{{- range $key, $value := .over -}}
{{- $old := get $result $key -}}
{{- if and (kindIs "invalid" $value) (hasKey $result $key) -}}
{{- $_ := unset $result $key -}}
{{- else if and (kindIs "map" $value) (kindIs "map" $old) -}}
{{- $_ := set $result $key (include "tidegate.merged" (dict "base" $old "over" $value) | fromJson) -}}
{{- else -}}
{{- $_ := set $result $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $result -}}
{{- end }}

{{/* The values of the file over the defaults, as JSON. It refuses what this chart can't carry, with what to do instead. */}}
{{- define "tidegate.collectorValues" -}}
{{- $file := fromYaml .Values.collector.valuesFile -}}
{{- with $file.Error }}{{ fail (printf "collector.valuesFile is not a values file: %s. Pass the file with --set-file collector.valuesFile=FILE" .) }}{{ end -}}
{{- include "tidegate.collectorBeside" . -}}
{{- include "tidegate.collectorRefusals" $file -}}
{{- $values := include "tidegate.merged" (dict "base" (include "tidegate.collectorDefaults" . | fromYaml) "over" $file) | fromJson -}}
{{- if not (has $values.mode (list "daemonset" "deployment" "statefulset")) -}}
{{- fail "collector.valuesFile: mode is missing: write deployment, daemonset or statefulset" -}}
{{- end -}}
{{- if $values.alternateConfig }}{{ $_ := set $values "config" $values.alternateConfig }}{{ end -}}
{{- include "tidegate.collectorReceivers" $values.config -}}
{{- range $name, $port := $values.ports -}}
{{- if not $port }}{{ $_ := unset $values.ports $name }}{{ continue }}{{ end -}}
{{- if and $port.enabled (not $port.containerPort) -}}
{{- fail (printf "collector.valuesFile: ports.%s has no containerPort: write it, or set enabled: false" $name) -}}
{{- end -}}
{{- end -}}
{{- toJson $values -}}
{{- end }}

{{/* The defaults of the values that only agents and gateways use. A template can't read values.yaml, so a test compares both. */}}
{{- define "tidegate.collectorUnused" -}}
agent:
  interval: 1s
  runAsUser: 10001
  nixl: {enabled: true, hostPath: /run/nixl}
  cells: {enabled: true, hostPath: /run/tidegate/cells}
  otlp: {enabled: true}
  resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {memory: 512Mi}}
  nodeSelector: {}
  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
  affinity: {}
  priorityClassName: ""
  maxUnavailable: 10%
  podAnnotations: {}
  podLabels: {}
  extraConfig: {}
  existingConfigMap: ""
  reload: false
gateway:
  replicas: 1
  runAsUser: 10001
  composites: []
  storage: {enabled: true, size: 20Gi, storageClassName: "", maxSize: 16GiB}
  resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {memory: 4Gi}}
  nodeSelector: {}
  tolerations: []
  affinity: {}
  priorityClassName: ""
  podDisruptionBudget: {enabled: true, maxUnavailable: 1}
  service: {type: ClusterIP, annotations: {}}
  podAnnotations: {}
  podLabels: {}
  extraConfig: {}
  existingConfigMap: ""
  reload: false
serviceAccount: {create: true, name: "", annotations: {}}
discovery: {agent: false, gateway: false}
cluster: {enabled: false}
networkPolicy: {enabled: false}
serviceMonitor: {enabled: false}
vendors: []
vendorInterval: 10s
scaledObjects: []
{{- end }}

{{/* Refuses values of this chart that agents and gateways would need: there are none. `agent.enabled` says nothing else. */}}
{{- define "tidegate.collectorBeside" -}}
{{- $set := list -}}
{{- range $group, $defaults := include "tidegate.collectorUnused" . | fromYaml -}}
{{- $given := get $.Values $group -}}
{{- if kindIs "map" $defaults -}}
{{- range $name, $default := $defaults -}}
{{- $value := get $given $name -}}
{{- /* After `--reuse-values` from an older chart, a value may be absent. */}}
{{- if and (hasKey $given $name) (ne (toJson $value) (toJson $default)) }}{{ $set = append $set (printf "%s.%s" $group $name) }}{{ end -}}
{{- end -}}
{{- else if ne (toJson $given) (toJson $defaults) -}}
{{- $set = append $set $group -}}
{{- end -}}
{{- end -}}
{{- with $set -}}
{{- fail (printf "%s: no effect beside collector.valuesFile, which makes no agents and gateways: remove these values, or install agents and gateways as a release of their own. The settings of the pods are in the values file" (join ", " .)) -}}
{{- end -}}
{{- end }}

{{/* What to do instead of a preset. */}}
{{- define "tidegate.collectorPresets" -}}
annotationDiscovery: name the pods in kubernetes_sd_configs of the receiver prometheus
clusterMetrics: scrape kube-state-metrics with the receiver prometheus
hostMetrics: scrape the node exporter with the receiver prometheus
kubeletMetrics: scrape the kubelet with the receiver prometheus
kubernetesAttributes: write the processor k8sattributes into config, and its rights into clusterRole.rules
kubernetesEvents: keep a Collector for events
logsCollection: keep a Collector for logs of files
{{- end }}

{{/* What to do instead of other values. */}}
{{- define "tidegate.collectorCures" -}}
extraConfigMapMounts: use extraVolumes and extraVolumeMounts
ingress: write the Ingress into extraManifests
internalTelemetryViaOTLP: enable ports.metrics, and scrape it
lifecycleHooks: the image has no shell for hooks
namespaceOverride: install the release into that namespace
networkPolicy: write the NetworkPolicy into extraManifests
prometheusRule: set alerts.enabled of this chart, or write the rules into extraManifests
targetAllocator: use the receiver prometheus_cr of tidegate (docs/scraping.md)
verticalPodAutoscaler: write the VerticalPodAutoscaler into extraManifests
{{- end }}

{{/* Refuses values of the file by name. Values that are off or empty have no effect, as in a copy of the defaults. */}}
{{- define "tidegate.collectorRefusals" -}}
{{- if contains "{{" (toJson .) }}{{ fail "collector.valuesFile: this chart evaluates no templates in the file: write their values instead of {{ ... }}" }}{{ end -}}
{{- $presets := include "tidegate.collectorPresets" . | fromYaml -}}
{{- range $name, $preset := .presets -}}
{{- if and (kindIs "map" $preset) $preset.enabled -}}
{{- fail (printf "collector.valuesFile: presets.%s: tidegate has no presets: set enabled: false, and %s" $name (get $presets $name | default "write its components into config")) -}}
{{- end -}}
{{- end -}}
{{- $carried := splitList " " "affinity additionalLabels alternateConfig annotations autoscaling clusterRole command config configMap dnsConfig dnsPolicy extraContainers extraEnvs extraEnvsFrom extraManifests extraVolumeMounts extraVolumes fullnameOverride hostAliases hostNetwork hostPID imagePullSecrets initContainers livenessProbe mode nameOverride nodeSelector podAnnotations podDisruptionBudget podLabels podMonitor podSecurityContext ports priorityClassName readinessProbe replicaCount resources revisionHistoryLimit rollout runtimeClassName schedulerName securityContext service serviceAccount serviceMonitor shareProcessNamespace startupProbe statefulset terminationGracePeriodSeconds tolerations topologySpreadConstraints" -}}
{{- $withoutEffect := list "enableConfigChecksumAnnotation" "global" "image" "presets" "useGOMEMLIMIT" -}}
{{- $cures := include "tidegate.collectorCures" . | fromYaml -}}
{{- range $name, $value := . -}}
{{- if hasKey $cures $name -}}
{{- $isOff := or (empty $value) (and (kindIs "map" $value) (hasKey $value "enabled") (not $value.enabled)) -}}
{{- if and (kindIs "map" $value) (eq $name "internalTelemetryViaOTLP") -}}
{{- $isOff = true -}}
{{- range $value }}{{ if and (kindIs "map" .) .enabled }}{{ $isOff = false }}{{ end }}{{ end -}}
{{- end -}}
{{- if not $isOff }}{{ fail (printf "collector.valuesFile: %s is not carried over: remove it; %s" $name (get $cures $name)) }}{{ end -}}
{{- else if not (has $name (concat $carried $withoutEffect)) -}}
{{- fail (printf "collector.valuesFile: %s is not known to this chart: remove it, or write the object into extraManifests" $name) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Refuses receivers that the official chart has by default and tidegate has not. */}}
{{- define "tidegate.collectorReceivers" -}}
{{- $foreign := "^(jaeger|zipkin)(/.*)?$" -}}
{{- range $name, $options := .receivers -}}
{{- if and (regexMatch $foreign $name) $options }}{{ fail (printf "collector.valuesFile: tidegate has no receiver %s: set config.receivers.%s: null, and let its senders use OTLP" $name $name) }}{{ end -}}
{{- end -}}
{{- range $pipeline, $parts := (.service).pipelines -}}
{{- range (($parts).receivers) -}}
{{- if regexMatch $foreign . }}{{ fail (printf "collector.valuesFile: tidegate has no receiver %s: remove it from config.service.pipelines.%s.receivers" . $pipeline) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The configuration as JSON, which is YAML and keeps large integers. `jaeger: null` of the file removes a default that is not
here. */}}
{{- define "tidegate.collectorConfig" -}}
{{- $config := deepCopy . -}}
{{- range $name, $options := .receivers -}}
{{- if and (regexMatch "^(jaeger|zipkin)$" $name) (not $options) }}{{ $_ := unset $config.receivers $name }}{{ end -}}
{{- end -}}
{{- toPrettyJson $config -}}
{{- end }}

{{- define "tidegate.collectorName" -}}
{{- $name := default "opentelemetry-collector" .values.nameOverride -}}
{{- if .values.fullnameOverride -}}
{{- .values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .root.Release.Name -}}
{{- .root.Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .root.Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "tidegate.collectorSelector" -}}
app.kubernetes.io/name: {{ default "opentelemetry-collector" .values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
component: {{ get (dict "daemonset" "agent-collector" "deployment" "standalone-collector" "statefulset" "statefulset-collector") .values.mode }}
{{- end }}

{{- define "tidegate.collectorLabels" -}}
{{ include "tidegate.collectorSelector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tidegate.collectorAccount" -}}
{{- $account := .values.serviceAccount -}}
{{- if $account.create }}{{ default (include "tidegate.collectorName" .) $account.name }}{{ else }}{{ default "default" $account.name }}{{ end -}}
{{- end }}

{{/* The specification of the pods. */}}
{{- define "tidegate.collectorPod" -}}
{{- $values := .values -}}
{{- $root := .root -}}
{{- $name := include "tidegate.collectorName" . -}}
{{- $account := $values.serviceAccount -}}
{{- $container := include "tidegate.merged" (dict "base" (include "tidegate.containerSecurity" . | fromYaml).securityContext "over" (default dict $values.securityContext)) | fromJson -}}
{{- $user := 10001 -}}
{{- range list $values.podSecurityContext $values.securityContext }}{{ if hasKey (default dict .) "runAsUser" }}{{ $user = .runAsUser }}{{ end }}{{ end -}}
{{- $security := include "tidegate.merged" (dict "base" (include "tidegate.podSecurity" (dict "user" (int $user)) | fromYaml) "over" (default dict $values.podSecurityContext)) | fromJson -}}
serviceAccountName: {{ include "tidegate.collectorAccount" . }}
automountServiceAccountToken: {{ ternary $account.automountServiceAccountToken (or $values.clusterRole.create (not $account.create)) (hasKey $account "automountServiceAccountToken") }}
{{- with concat (default list $root.Values.imagePullSecrets) (default list $values.imagePullSecrets) }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml $security | nindent 2 }}
{{- range $key := list "affinity" "dnsConfig" "dnsPolicy" "hostAliases" "hostNetwork" "hostPID" "initContainers" "nodeSelector" "priorityClassName" "runtimeClassName" "schedulerName" "shareProcessNamespace" "terminationGracePeriodSeconds" "tolerations" "topologySpreadConstraints" }}
{{- $value := get $values $key }}
{{- /* Empty values are those of a copy of the defaults. 0 is a number of seconds. */}}
{{- if or $value (kindIs "float64" $value) }}
{{ $key }}: {{- toYaml $value | nindent 2 }}
{{- end }}
{{- end }}
containers:
  - name: opentelemetry-collector
    image: {{ include "tidegate.image" $root | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args:
      - --config=/conf/relay.yaml
      {{- with $values.command.extraArgs }}{{ toYaml . | nindent 6 }}{{ end }}
    env:
      - name: MY_POD_IP
        valueFrom: {fieldRef: {fieldPath: status.podIP}}
      {{- with $values.extraEnvs }}{{ toYaml . | nindent 6 }}{{ end }}
    {{- with $values.extraEnvsFrom }}
    envFrom: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- $ports := list }}
    {{- range $port, $options := $values.ports }}
    {{- if $options.enabled }}
    {{- $entry := dict "name" $port "containerPort" $options.containerPort "protocol" (default "TCP" $options.protocol) }}
    {{- if and $options.hostPort (eq $values.mode "daemonset") }}{{ $_ := set $entry "hostPort" $options.hostPort }}{{ end }}
    {{- $ports = append $ports $entry }}
    {{- end }}
    {{- end }}
    {{- with $ports }}
    ports: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- range $key := list "livenessProbe" "readinessProbe" "startupProbe" "resources" }}
    {{- with get $values $key }}
    {{ $key }}: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- end }}
    securityContext: {{- toYaml $container | nindent 6 }}
    volumeMounts:
      - {name: opentelemetry-collector-configmap, mountPath: /conf, readOnly: true}
      {{- with $values.extraVolumeMounts }}{{ toYaml . | nindent 6 }}{{ end }}
  {{- with $values.extraContainers }}{{ toYaml . | nindent 2 }}{{ end }}
volumes:
  - name: opentelemetry-collector-configmap
    configMap:
      name: {{ default (include "tidegate.collectorConfigMap" .) $values.configMap.existingName }}
      items: [{key: relay, path: relay.yaml}]
  {{- with $values.extraVolumes }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{- define "tidegate.collectorConfigMap" -}}
{{ include "tidegate.collectorName" . }}{{ get (dict "daemonset" "-agent" "deployment" "" "statefulset" "-statefulset") .values.mode }}
{{- end }}
