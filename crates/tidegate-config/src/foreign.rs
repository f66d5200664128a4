// SPDX-License-Identifier: Apache-2.0

//! Components that the Collector has and tidegate has not: what to use instead.
//!
//! A near name is the wrong cure for them: `resourcedetection` is not a mistyped `resource`.

use super::id::Class;

/// Types of a class, without underscores, with what to use instead.
type ForeignComponent = (&'static [Class], &'static [&'static str], &'static str);

const IN: &[Class] = &[Class::Receiver];
const WORK: &[Class] = &[Class::Processor];
const OUT: &[Class] = &[Class::Exporter];
const JOIN: &[Class] = &[Class::Connector];
const BESIDE: &[Class] = &[Class::Extension];

/// More than one row may name a type; the first counts.
const KNOWN: &[ForeignComponent] = &[
    (
        WORK,
        &["cumulativetodelta"],
        "say `temporality: delta` on the exporter (`otlp`, `otlphttp`, `file`)",
    ),
    (
        WORK,
        &["deltatocumulative"],
        "say `temporality: cumulative` on the exporter; `prometheus` and `prometheusremotewrite` do so by themselves",
    ),
    (
        WORK,
        &["transform"],
        "OTTL is not supported; `attributes`, `resource` and `filter` do the plain cases, a Collector in front the others",
    ),
    (
        WORK,
        &["resourcedetection"],
        "set the attributes in the programs that send the data (`OTEL_RESOURCE_ATTRIBUTES`), or with `resource`: \
         `{attributes: [{key: host.name, value: \"${env:NODE_NAME}\", action: upsert}]}`",
    ),
    (
        WORK,
        &["groupbyattrs", "groupbytrace", "interval"],
        "`aggregate` adds up by the attributes that you name; keep a Collector in front for the rest",
    ),
    (
        WORK,
        &[
            "metricstransform",
            "metricsgeneration",
            "deltatorate",
            "metricstarttime",
        ],
        "`aggregate` renames and combines series, `composite` computes values; keep a Collector in front for the rest",
    ),
    (
        WORK,
        &[
            "tailsampling",
            "probabilisticsampler",
            "spanmetrics",
            "servicegraph",
            "span",
            "sumologic",
        ],
        "it works on traces; send traces through a Collector",
    ),
    (
        WORK,
        &[
            "redaction",
            "remotetap",
            "schema",
            "routing",
            "geoip",
            "isolationforest",
            "logdedup",
            "logstransform",
            "dnslookup",
            "unroll",
            "datadog",
            "coralogix",
            "lookup",
        ],
        "keep a Collector in front for it",
    ),
    (
        IN,
        &[
            "hostmetrics",
            "kubeletstats",
            "k8scluster",
            "dockerstats",
            "podmanstats",
            "windowsperfcounters",
        ],
        "run an exporter for it (node_exporter, cAdvisor, kube-state-metrics) and scrape that with `prometheus`",
    ),
    (
        IN,
        &[
            "statsd",
            "carbon",
            "collectd",
            "influxdb",
            "wavefront",
            "signalfx",
            "skywalking",
        ],
        "keep a Collector in front, sending OTLP; StatsD lines are taken over a Unix socket by `uds`",
    ),
    (
        IN,
        &[
            "jaeger",
            "zipkin",
            "opencensus",
            "datadog",
            "awsxray",
            "sapm",
            "splunkhec",
            "otelarrow",
        ],
        "keep a Collector in front of it, sending OTLP to `otlp`",
    ),
    (
        IN,
        &[
            "filelog",
            "journald",
            "k8sobjects",
            "k8sevents",
            "syslog",
            "tcplog",
            "udplog",
            "fluentforward",
            "loki",
            "windowseventlog",
            "k8slog",
            "otlpjsonfile",
        ],
        "it reads logs or events; keep a Collector beside it, sending OTLP to `otlp`",
    ),
    (
        IN,
        &[
            "redis",
            "postgresql",
            "mysql",
            "nginx",
            "apache",
            "kafkametrics",
            "rabbitmq",
            "mongodb",
            "elasticsearch",
            "haproxy",
            "memcached",
            "zookeeper",
            "jmx",
            "httpcheck",
            "sqlquery",
            "sqlserver",
            "vcenter",
            "snmp",
            "prometheussimple",
        ],
        "run the Prometheus exporter of that software and scrape it with `prometheus`",
    ),
    (
        IN,
        &[
            "receivercreator",
            "googlecloudpubsub",
            "awsecscontainermetrics",
            "awscontainerinsightreceiver",
            "azuremonitor",
        ],
        "keep a Collector for it, sending OTLP to `otlp`",
    ),
    (
        OUT,
        &["jaeger", "zipkin", "opencensus", "skywalking"],
        "send OTLP: Jaeger and the others take it (`otlp` to port 4317)",
    ),
    (
        OUT,
        &["datadog"],
        "send OTLP: `otlphttp` with `vendor: datadog`, which `tidegate config convert` writes",
    ),
    (
        OUT,
        &["dynatrace"],
        "send OTLP: `otlphttp` with `vendor: dynatrace`, which `tidegate config convert` writes",
    ),
    (
        OUT,
        &["newrelic"],
        "send OTLP: `otlphttp` with `vendor: newrelic`, which `tidegate config convert` writes",
    ),
    (
        OUT,
        &["sapm", "signalfx"],
        "send OTLP to Splunk Observability Cloud: `otlphttp` with `vendor: splunk`, which `tidegate config convert` writes",
    ),
    (
        OUT,
        &["splunkhec"],
        "send OTLP to a Collector that has it: the preset `splunk` is for Splunk Observability Cloud, which is another product",
    ),
    (
        OUT,
        &["googlecloud"],
        "send OTLP: `otlphttp` with `vendor: google_cloud`, and a token by `bearertokenauth`",
    ),
    (
        OUT,
        &["azuremonitor"],
        "send OTLP: `otlphttp` with `vendor: azure`, and a token by `bearertokenauth`",
    ),
    (
        OUT,
        &["awsxray"],
        "send OTLP to X-Ray: `otlphttp` with `vendor: aws`, and `sigv4auth` with `service: xray`",
    ),
    (
        OUT,
        &["awscloudwatchlogs"],
        "send OTLP to CloudWatch: `otlphttp` with `vendor: aws`, `headers` with the log group and the log stream, and \
         `sigv4auth` with `service: logs`",
    ),
    (
        OUT,
        &["awsemf"],
        "send OTLP to CloudWatch: `otlphttp` with `vendor: aws`, and `sigv4auth`; for log lines in EMF, keep a Collector",
    ),
    (
        OUT,
        &["coralogix"],
        "send OTLP: `otlp` or `otlphttp` with the OTLP endpoint of its domain, and its key in `headers`",
    ),
    (
        OUT,
        &["loki"],
        "send OTLP, which Loki 3 takes: `otlphttp` with `endpoint: http://HOST:3100/otlp`",
    ),
    (
        OUT,
        &[
            "elasticsearch",
            "clickhouse",
            "awss3",
            "googlemanagedprometheus",
            "otelarrow",
            "pulsar",
        ],
        "send OTLP to a Collector that has it",
    ),
    (
        JOIN,
        &[
            "spanmetrics",
            "servicegraph",
            "count",
            "sum",
            "routing",
            "failover",
            "exceptions",
            "roundrobin",
            "signaltometrics",
            "otlpjson",
            "datadog",
        ],
        "tidegate has `forward`; keep a Collector in front for it",
    ),
    (
        BESIDE,
        &[
            "opamp",
            "k8sobserver",
            "hostobserver",
            "dockerobserver",
            "ecsobserver",
            "cfgardenobserver",
            "k8sleaderelector",
        ],
        "leave it out: the configuration is a file, and targets come from `prometheus` discovery",
    ),
    (
        BESIDE,
        &[
            "oauth2client",
            "oidc",
            "asapclient",
            "azureauth",
            "googleclientauth",
            "jaegerremotesampling",
            "httpforwarder",
            "remotetap",
        ],
        "`basicauth`, `bearertokenauth` (its file is read again when it changes), `headers_setter` and `sigv4auth` are there",
    ),
    (BESIDE, &["dbstorage", "redisstorage"], "use `file_storage`"),
];

/// The replacement for a component of the Collector that tidegate does not have.
pub fn instead(class: Class, kind: &str) -> Option<&'static str> {
    let kind = kind.replace('_', "");
    let of_class =
        |(classes, kinds, _): &&ForeignComponent| classes.contains(&class) && kinds.contains(&kind.as_str());
    KNOWN.iter().find(of_class).map(|(_, _, instead)| *instead)
}

/// The types of a class that tidegate does not have, without underscores, each with its replacement.
pub fn foreign_components(class: Class) -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_class = move |(classes, ..): &&'static ForeignComponent| classes.contains(&class);
    let rows = KNOWN.iter().filter(of_class);
    rows.flat_map(|(_, kinds, instead)| kinds.iter().map(move |kind| (*kind, *instead)))
}
