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
        &["groupbyattrs", "interval"],
        "`aggregate` adds up by the attributes that you name; keep a Collector in front for the rest",
    ),
    (
        WORK,
        &["metricstransform", "metricsgeneration", "deltatorate"],
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
            "groupbytrace",
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
            "metricstarttime",
            "sumologic",
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
            "systemd",
            "chrony",
            "ntp",
        ],
        "run an exporter for it (node_exporter, cAdvisor, kube-state-metrics) and scrape that with `prometheus`",
    ),
    (
        IN,
        &[
            "windowsperfcounters",
            "windowsservice",
            "activedirectoryds",
            "iis",
        ],
        "run windows_exporter and scrape it with `prometheus`",
    ),
    (
        IN,
        &["statsd"],
        "`uds` takes StatsD lines over a Unix socket; for UDP, keep a Collector in front, sending OTLP to `otlp`",
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
            "carbon",
            "collectd",
            "influxdb",
            "wavefront",
            "signalfx",
            "skywalking",
            "faro",
            "libhoney",
            "stef",
            "pulsar",
            "solace",
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
            "namedpipe",
            "webhookevent",
            "envoyals",
            "netflow",
            "cloudflare",
            "activedirectoryinv",
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
            "sqlquery",
            "sqlserver",
            "vcenter",
            "snmp",
            "aerospike",
            "apachespark",
            "bigip",
            "couchdb",
            "expvar",
            "flinkmetrics",
            "oracledb",
            "riak",
            "saphana",
            "purefa",
            "purefb",
        ],
        "run the Prometheus exporter of that software and scrape it with `prometheus`",
    ),
    (
        IN,
        &[
            "httpcheck",
            "tcpcheck",
            "tlscheck",
            "sshcheck",
            "icmpcheck",
            "dnscheck",
        ],
        "run blackbox_exporter and scrape it with `prometheus`",
    ),
    (
        IN,
        &["prometheussimple"],
        "use `prometheus`, with a job in `config: {scrape_configs: [...]}`",
    ),
    (
        IN,
        &[
            "receivercreator",
            "googlecloudpubsub",
            "awsecscontainermetrics",
            "awscontainerinsightreceiver",
            "azuremonitor",
            "awscloudwatch",
            "awsfirehose",
            "awslambda",
            "awss3",
            "azureblob",
            "azureeventhub",
            "azurefunctions",
            "cloudfoundry",
            "filestats",
            "github",
            "gitlab",
            "googlecloudmonitoring",
            "googlecloudpubsubpush",
            "googlecloudspanner",
            "mongodbatlas",
            "nsxt",
            "snowflake",
            "splunkenterprise",
        ],
        "keep a Collector for it, sending OTLP to `otlp`",
    ),
    (
        OUT,
        &["jaeger"],
        "send OTLP, which Jaeger takes: `otlp` to port 4317",
    ),
    (
        OUT,
        &["opencensus"],
        "send OTLP: `otlp` to port 4317 of the Collector that takes OpenCensus",
    ),
    (
        OUT,
        &["skywalking"],
        "send OTLP, which SkyWalking takes: `otlp` to the gRPC port of its OAP server",
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
            "zipkin",
            "influxdb",
            "opensearch",
            "alibabacloudlogservice",
            "awskinesis",
            "azureblob",
            "azuredataexplorer",
            "bmchelix",
            "carbon",
            "cassandra",
            "dataset",
            "doris",
            "faro",
            "googlecloudpubsub",
            "googlecloudstorage",
            "honeycombmarker",
            "logicmonitor",
            "logzio",
            "mezmo",
            "rabbitmq",
            "sentry",
            "stef",
            "sumologic",
            "syslog",
            "tencentcloudlogservice",
            "tinybird",
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
            "grafanacloud",
            "metricsaslogs",
            "slowsql",
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_type_of_a_class_has_one_replacement() {
        for class in Class::ALL {
            let mut kinds = HashSet::new();
            for (kind, instead) in foreign_components(class) {
                assert!(kinds.insert(kind), "{kind}: {instead}");
                assert!(!kind.contains('_'), "{kind}");
            }
        }
    }

    #[test]
    fn replacements_say_what_is_true_of_the_type() {
        use Class::{Exporter, Processor, Receiver};
        for (class, kind, part) in [
            (Processor, "groupbytrace", "traces"),
            (Processor, "metricstarttime", "keep a Collector"),
            (Processor, "sumologic", "keep a Collector"),
            (Receiver, "statsd", "`uds`"),
            (Receiver, "tcpcheck", "blackbox_exporter"),
            (Receiver, "azure_event_hub", "keep a Collector"),
            (Exporter, "zipkin", "a Collector that has it"),
        ] {
            let instead = instead(class, kind).unwrap();
            assert!(instead.contains(part), "{kind}: {instead}");
        }
        for kind in ["skywalking", "wavefront"] {
            assert!(!instead(Receiver, kind).unwrap().contains("StatsD"), "{kind}");
        }
    }
}
