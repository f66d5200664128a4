// SPDX-License-Identifier: Apache-2.0

//! The catalogue of the gateway's own metrics: kind, unit, lowest level and help text.
//!
//! A metric that is missing here has no help text. A test searches the source for names and finds it.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::config::Detail;

/// The description of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Described {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    /// The unit in UCUM, as in OpenTelemetry.
    pub(super) unit: &'static str,
    /// The lowest level at which the metric exists.
    pub(super) level: Detail,
    pub(super) help: &'static str,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MetricKind {
    Counter,
    /// A counter with fractions. Components set it as a gauge: the `metrics` facade counts whole numbers only.
    FractionCounter,
    Gauge,
    /// A histogram with these bounds.
    Histogram(&'static [f64]),
}

/// Bounds for request sizes in items.
pub(super) const ITEMS: &[f64] = &[
    10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0,
    7000.0, 8000.0, 9000.0, 10_000.0, 20_000.0, 30_000.0, 50_000.0, 100_000.0,
];

/// Bounds for request sizes in bytes.
pub(super) const BYTES: &[f64] = &[
    128.0,
    256.0,
    512.0,
    1024.0,
    2048.0,
    4096.0,
    8192.0,
    16_384.0,
    32_768.0,
    65_536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
    2_097_152.0,
    4_194_304.0,
    8_388_608.0,
    16_777_216.0,
];

/// Bounds for durations in seconds: microseconds within the gateway, seconds between two gateways.
pub(super) const SECONDS: &[f64] = &[
    0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0,
    2.5, 5.0, 7.5, 10.0,
];

macro_rules! metrics_table {
    ($($level:ident $kind:ident $name:literal [$unit:literal] $(($bounds:expr))? $help:literal;)*) => {
        &[$(Described {
            name: $name,
            kind: MetricKind::$kind $(($bounds))?,
            unit: $unit,
            level: Detail::$level,
            help: $help,
        }),*]
    };
}

/// All metrics.
#[rustfmt::skip]
pub(super) const CATALOGUE: &[Described] = metrics_table! {
    Basic Counter "otelcol_receiver_accepted_metric_points" ["{datapoint}"] "Metric points that the pipelines took.";
    Basic Counter "otelcol_receiver_accepted_spans" ["{span}"] "Spans that the pipelines took.";
    Basic Counter "otelcol_receiver_accepted_log_records" ["{record}"] "Log records that the pipelines took.";
    Basic Counter "otelcol_receiver_refused_metric_points" ["{datapoint}"] "Metric points that the pipelines refused; the sender still has them.";
    Basic Counter "otelcol_receiver_refused_spans" ["{span}"] "Spans that the pipelines refused; the sender still has them.";
    Basic Counter "otelcol_receiver_refused_log_records" ["{record}"] "Log records that the pipelines refused; the sender still has them.";
    Basic Counter "otelcol_receiver_failed_metric_points" ["{datapoint}"] "Metric points that the receiver could not read: a request or message that can't be read counts as one.";
    Basic Counter "otelcol_receiver_failed_spans" ["{span}"] "Spans that the receiver could not read: a request or message that can't be read counts as one.";
    Basic Counter "otelcol_receiver_failed_log_records" ["{record}"] "Log records that the receiver could not read: a request or message that can't be read counts as one.";
    Basic Counter "otelcol_exporter_sent_metric_points" ["{datapoint}"] "Metric points that the destination accepted.";
    Basic Counter "otelcol_exporter_sent_spans" ["{span}"] "Spans that the destination accepted.";
    Basic Counter "otelcol_exporter_sent_log_records" ["{record}"] "Log records that the destination accepted.";
    Basic Counter "otelcol_exporter_send_failed_metric_points" ["{datapoint}"] "Metric points dropped because they could not be delivered.";
    Basic Counter "otelcol_exporter_send_failed_spans" ["{span}"] "Spans dropped because they could not be delivered.";
    Basic Counter "otelcol_exporter_send_failed_log_records" ["{record}"] "Log records dropped because they could not be delivered.";
    Basic Counter "otelcol_exporter_enqueue_failed_metric_points" ["{datapoint}"] "Metric points dropped because the sending queue was full.";
    Basic Counter "otelcol_exporter_enqueue_failed_spans" ["{span}"] "Spans dropped because the sending queue was full.";
    Basic Counter "otelcol_exporter_enqueue_failed_log_records" ["{record}"] "Log records dropped because the sending queue was full.";
    Basic Gauge "otelcol_exporter_queue_size" ["{unit}"] "Data of a signal in the sending queue, in the unit of its `sizer`.";
    Basic Gauge "otelcol_exporter_queue_capacity" ["{unit}"] "Capacity of the sending queue for a signal: its limit minus the data of other signals.";
    Basic Gauge "otelcol_exporter_in_flight_requests" ["{request}"] "Requests sent and not answered yet.";
    Basic Gauge "tidegate_exporter_failing" ["{exporter}"] "1 while an exporter can't deliver, by reason.";
    Normal Counter "tidegate_colliding_streams_total" ["{stream}"] "Streams of several sources that collide in one series, by reason.";
    Normal Counter "tidegate_clock_steps_total" ["{step}"] "Steps of the wall clock while the gateway ran.";
    Normal Counter "tidegate_stray_streams_total" ["{stream}"] "Streams whose points were refused because of their times, and streams that continue after their clock was set back.";
    Normal Counter "tidegate_composite_future_points_total" ["{datapoint}"] "Points that composites dropped: their times lie too far ahead of the gateway's clock.";
    Detailed Histogram "otelcol_exporter_queue_batch_send_size" ["{unit}"] (ITEMS) "Items of each request that was sent; a retry does not count again.";
    Detailed Histogram "otelcol_exporter_queue_batch_send_size_bytes" ["By"] (BYTES) "Bytes of each request that was sent, as OTLP protobuf before compression.";
    Normal Histogram "otelcol_processor_batch_batch_send_size" ["{unit}"] (ITEMS) "Items of each request that the processor had made.";
    Detailed Histogram "otelcol_processor_batch_batch_send_size_bytes" ["By"] (BYTES) "Bytes of each request that the processor had made, as OTLP protobuf.";
    Normal Counter "otelcol_processor_batch_batch_size_trigger_send" ["{time}"] "Requests sent because they were large enough.";
    Normal Counter "otelcol_processor_batch_timeout_trigger_send" ["{time}"] "Requests sent because they had waited for the timeout.";
    Normal Gauge "otelcol_processor_batch_metadata_cardinality" ["{combination}"] "Combinations of metadata that the processor has seen.";
    Detailed Histogram "otelcol_processor_internal_duration" ["s"] (SECONDS) "Time that a batch took in the processor, without the components below.";
    Detailed Histogram "http.server.request.duration" ["s"] (SECONDS) "Duration of requests to HTTP servers of the gateway.";
    Detailed Histogram "http.server.request.body.size" ["By"] (BYTES) "Size of bodies of requests to HTTP servers, where the client announces it.";
    Detailed Histogram "http.client.request.duration" ["s"] (SECONDS) "Duration of requests of HTTP exporters.";
    Detailed Histogram "http.client.request.body.size" ["By"] (BYTES) "Size of bodies of requests of HTTP exporters, as sent.";
    Detailed Histogram "rpc.server.call.duration" ["s"] (SECONDS) "Duration of calls to gRPC servers of the gateway.";
    Detailed Histogram "rpc.client.call.duration" ["s"] (SECONDS) "Duration of calls of gRPC exporters.";
    Basic Counter "otelcol_processor_incoming_items" ["{item}"] "Items that entered the processor.";
    Basic Counter "otelcol_processor_outgoing_items" ["{item}"] "Items that left the processor.";
    Basic Counter "otelcol_processor_memory_limiter_accepted_metric_points" ["{datapoint}"] "Metric points that the memory limiter let pass.";
    Basic Counter "otelcol_processor_memory_limiter_accepted_spans" ["{span}"] "Spans that the memory limiter let pass.";
    Basic Counter "otelcol_processor_memory_limiter_accepted_log_records" ["{record}"] "Log records that the memory limiter let pass.";
    Basic Counter "otelcol_processor_memory_limiter_refused_metric_points" ["{datapoint}"] "Metric points that the memory limiter refused.";
    Basic Counter "otelcol_processor_memory_limiter_refused_spans" ["{span}"] "Spans that the memory limiter refused.";
    Basic Counter "otelcol_processor_memory_limiter_refused_log_records" ["{record}"] "Log records that the memory limiter refused.";
    Normal Counter "otelcol_processor_filter_datapoints_filtered" ["1"] "Metric points that the filter dropped.";
    Normal Counter "otelcol_processor_filter_spans_filtered" ["1"] "Spans that the filter dropped.";
    Normal Counter "otelcol_processor_filter_logs_filtered" ["1"] "Log records that the filter dropped.";
    Basic Gauge "tidegate_build_info" ["1"] "1, with labels that say which build runs: version, commit, its date, features, compiler.";
    Basic FractionCounter "otelcol_process_uptime" ["s"] "Time since the start.";
    Basic FractionCounter "otelcol_process_cpu_seconds" ["s"] "Processor time used, user and system.";
    Basic Gauge "otelcol_process_memory_rss" ["By"] "Resident memory.";
    Basic Gauge "otelcol_process_runtime_heap_alloc_bytes" ["By"] "Memory that the allocator holds for the heap, in use or ready for use.";
    Basic Gauge "tidegate_process_live_bytes" ["By"] "Resident memory after the allocator returned free memory, at most 0.4 s ago.";
    Basic Gauge "otelcol_process_runtime_total_sys_memory_bytes" ["By"] "Memory for data that the system has given to the process, touched or not (VmData and VmStk).";
    Basic Counter "tidegate_dropped_items_total" ["{item}"] "Items that a component dropped, by reason.";
    Normal Counter "tidegate_component_items_total" ["{item}"] "Items that entered, were made, were restored from disk, left or were absorbed, by component.";
    Normal Gauge "tidegate_held_items" ["{item}"] "Items inside a component now: in + made + restored - out - absorbed - dropped.";
    Normal Gauge "tidegate_aggregate_series" ["{series}"] "Series that the table of an aggregate holds.";
    Normal Gauge "tidegate_aggregate_bytes" ["By"] "Memory of the table of an aggregate, estimated.";
    Normal Gauge "tidegate_aggregate_streams" ["{stream}"] "Incoming streams that an aggregate follows.";
    Normal Gauge "tidegate_aggregate_sources" ["{source}"] "Sources that an aggregate follows.";
    Normal Counter "tidegate_aggregate_expired_series_total" ["{series}"] "Series that an aggregate removed because their sources have gone.";
    Normal Counter "tidegate_aggregate_overflowed_streams_total" ["{stream}"] "Streams without a series of their own, by the limit that was reached.";
    Normal Counter "tidegate_aggregate_refused_quantiles_total" ["{quantile}"] "Quantiles of summaries that an aggregate dropped.";
    Normal Counter "tidegate_composite_overflows_total" ["{overflow}"] "Items that did not fit in a composite, by reason: groups, points of series that it does not follow, or groups and points without memory (bytes).";
    Normal Gauge "tidegate_composite_page_refused_entries" ["{entry}"] "Groups that are not in the shared page now, by reason.";
    Normal Counter "tidegate_answers_refused_total" ["{answer}"] "Answers refused because those that clients have not read take too much memory.";
    Normal Counter "tidegate_queries_refused_total" ["{query}"] "Queries and watches that were not answered, by reason.";
    Normal Gauge "tidegate_history_bytes" ["By"] "Memory of the past that queries can see, and of the gauges that failed targets had.";
    Normal Gauge "tidegate_history_series" ["{series}"] "Series with a past that queries can see.";
    Normal Counter "tidegate_history_refused_series_total" ["{series}"] "Series without a past, and forgotten gauges of failed targets, because the history is full.";
    Normal Counter "tidegate_history_fetched_series_total" ["{series}"] "Series that got samples of another replica.";
    Normal Counter "tidegate_history_fetched_samples_total" ["{sample}"] "Samples that came from another replica.";
    Normal Counter "tidegate_history_fetch_omitted_series_total" ["{series}"] "Series of another replica that are not here, or have no history here.";
    Normal Counter "tidegate_history_fetch_omitted_samples_total" ["{sample}"] "Samples of another replica without room in the history.";
    Normal Counter "tidegate_history_fetch_failures_total" ["{peer}"] "Replicas that gave no history, by reason.";
    Normal Counter "tidegate_rule_evaluations_total" ["{evaluation}"] "Evaluations of rules.";
    Normal Counter "tidegate_rule_evaluation_failures_total" ["{evaluation}"] "Evaluations of rules that failed.";
    Normal Counter "tidegate_rule_template_errors_total" ["{template}"] "Templates of alerts that could not be expanded.";
    Normal Counter "tidegate_rule_evaluations_missed_total" ["{evaluation}"] "Evaluations of a group that did not take place because an earlier one took too long.";
    Normal Histogram "tidegate_rule_group_duration_seconds" ["s"] (SECONDS) "Time of an evaluation of a group.";
    Normal Counter "tidegate_rule_samples_dropped_total" ["{sample}"] "Recorded samples that were lost, by reason.";
    Normal Counter "tidegate_alerts_sent_total" ["{alert}"] "Alerts that an Alertmanager has accepted.";
    Normal Counter "tidegate_alert_errors_total" ["{request}"] "Requests to an Alertmanager that failed.";
    Normal Counter "tidegate_alerts_dropped_total" ["{alert}"] "Alerts that an Alertmanager does not get, by reason.";
    Normal Gauge "tidegate_alerts_waiting" ["{alert}"] "Alerts that wait for an Alertmanager.";
    Normal Gauge "tidegate_nixl_mp_stores" ["{store}"] "Multi-process stores open now.";
    Normal Gauge "tidegate_nixl_mp_unread_files" ["{file}"] "Store files that can't be opened now.";
    Normal Counter "tidegate_nixl_mp_rejected_files_total" ["{file}"] "Store files that could not be opened, by reason.";
    Normal Gauge "tidegate_nixl_rings" ["{ring}"] "Rings open now.";
    Normal Gauge "tidegate_nixl_ring_info" ["{ring}"] "1 for the current properties of each ring.";
    Normal Gauge "tidegate_nixl_ring_fill_ratio" ["1"] "How full the ring was at the last look, from 0 to 1.";
    Normal Counter "tidegate_nixl_ring_events_total" ["{event}"] "Events taken out of a ring.";
    Normal Counter "tidegate_nixl_ring_deselected_events_total" ["{event}"] "Events taken out of a ring that `categories` and `events` exclude.";
    Normal Counter "tidegate_nixl_ring_suspected_loss_total" ["{look}"] "Looks that found a ring full: the agent may have dropped events.";
    Normal Counter "tidegate_nixl_ring_resets_total" ["{reset}"] "Resets of a ring, by reason.";
    Normal Counter "tidegate_nixl_ring_lost_events_total" ["{event}"] "Events lost before the gateway could read them, by reason.";
    Normal Counter "tidegate_nixl_ring_rejected_events_total" ["{event}"] "Events of a ring that could not be read, or that the pipelines refuse permanently.";
    Normal Counter "tidegate_nixl_ring_errors_total" ["{error}"] "Errors while a ring was read, by reason.";
    Normal Gauge "tidegate_nixl_unread_files" ["{file}"] "Ring files that can't be opened now.";
    Normal Counter "tidegate_nixl_rejected_files_total" ["{file}"] "Ring files that could not be opened, by reason.";
    Normal Counter "tidegate_memory_refusals_total" ["{request}"] "Requests refused because memory or processors are too short for them, by receiver or other component, and reason.";
    Normal Counter "tidegate_otlp_memory_refusals_total" ["{request}"] "Requests that `otlp` receivers refused because memory or processors are short.";
    Normal Counter "tidegate_kafka_skipped_messages_total" ["{message}"] "Messages that `kafka` receivers skipped, by reason.";
    Normal Counter "tidegate_nats_skipped_messages_total" ["{message}"] "Messages that `nats` receivers skipped, by reason.";
    Normal Counter "tidegate_nats_repeated_messages_total" ["{message}"] "Messages that NATS delivered again although the receiver had answered them.";
    Normal Counter "tidegate_nats_duplicate_messages_total" ["{message}"] "Messages of `nats` exporters that their stream had already.";
    Normal Counter "tidegate_requests_refused_total" ["{request}"] "Requests refused for reasons other than their data, by component and reason.";
    Normal Counter "tidegate_unauthenticated_requests_total" ["{request}"] "Requests of senders and readers refused by authentication, by component and reason.";
    Normal Counter "tidegate_plugin_calls_total" ["{call}"] "Calls of exporter plugins, by result.";
    Normal Gauge "tidegate_plugin_stuck" ["{call}"] "1 while a call of an exporter plugin does not return.";
    Normal Gauge "tidegate_plugin_info" ["{plugin}"] "1 for the description of each exporter plugin.";
    Normal Counter "tidegate_partials_stored_pages_total" ["{page}"] "Pages of this producer that the store of the cluster has taken.";
    Normal Counter "tidegate_partials_failed_pages_total" ["{page}"] "Pages that the store of the cluster did not take. They are sent again.";
    Normal Counter "tidegate_partials_late_pages_total" ["{page}"] "Pages that waited longer than an interval.";
    Normal Counter "tidegate_partials_bytes_total" ["By"] "Bytes of pages, before compression.";
    Normal Counter "tidegate_partials_new_runs_total" ["{run}"] "Runs that a producer began because its series had no place.";
    Normal Gauge "tidegate_partials_run" ["1"] "Number of the present run of this producer.";
    Normal Gauge "tidegate_partials_series" ["{series}"] "Series in the pages of this producer, with those that have expired.";
    Normal Gauge "tidegate_partials_carried_series" ["{series}"] "Series whose totals contain an earlier life of the series.";
    Normal Gauge "tidegate_partials_waiting_pages" ["{page}"] "Pages that wait to be sent.";
    Normal Gauge "tidegate_partials_oldest_wait_seconds" ["s"] "Time for which the oldest of the waiting pages has waited.";
    Normal Counter "tidegate_partials_refused_series_total" ["{series}"] "Series that were not in an update of the pages, by reason.";
    Normal Counter "tidegate_cluster_pages_total" ["{page}"] "Pages that a replica has merged, with repeated ones.";
    Normal Counter "tidegate_cluster_records_total" ["{record}"] "Records of retained totals that a replica has merged, with repeated ones.";
    Normal Counter "tidegate_cluster_refused_total" ["{item}"] "Messages and values that a replica did not merge, by reason.";
    Normal Counter "tidegate_cluster_unreadable_messages_total" ["{message}"] "Messages that a replica could not read, by producer and reason.";
    Normal Counter "tidegate_cluster_losses_total" ["{loss}"] "Times at which the store of the cluster had lost its newest messages.";
    Normal Gauge "tidegate_cluster_ready" ["1"] "1 while readers may trust the replica.";
    Normal Gauge "tidegate_cluster_lag_seconds" ["s"] "Time since the replica last knew all messages of the store.";
    Normal Gauge "tidegate_config_reload_success" ["1"] "1 if the newest configuration runs, 0 if the last reload was refused.";
    Normal Gauge "tidegate_config_reload_timestamp_seconds" ["s"] "Unix time of the start or of the last reload that succeeded.";
    Normal Gauge "tidegate_cluster_series" ["{series}"] "Merged series.";
    Normal Gauge "tidegate_cluster_bytes" ["By"] "Memory of the merged series.";
    Normal Gauge "tidegate_cluster_producers" ["{producer}"] "Producers that should report (expected), and those of them that do (reporting).";
    Normal Gauge "tidegate_cluster_leader" ["1"] "1 while the replica leads the cluster.";
    Normal Counter "tidegate_cluster_delta_claims_total" ["{claim}"] "Claims of intervals of deltas, by result: won, lost and failed ones of this replica, and those of others that it followed.";
    Normal Counter "tidegate_cluster_delta_handovers_total" ["{handover}"] "Won claims that followed a claim of another replica. Each may have lost one interval of deltas.";
    Normal Counter "tidegate_cluster_delta_gap_seconds_total" ["s"] "Seconds from claims of other replicas to the moments from which this replica knew the totals, by handover. Deltas of this time are lost.";
    Normal Counter "tidegate_cluster_linearizable_reads_total" ["{read}"] "Readers that waited until the store confirmed the values, by result: confirmed, or failed.";
    Normal Counter "tidegate_cluster_restored_records_total" ["{record}"] "Records of retained totals that the store had lost and the replica has put back.";
    Normal Counter "tidegate_cluster_folded_runs_total" ["{run}"] "Ended runs whose pages the replica has replaced by a record.";
    Normal Counter "tidegate_cluster_failed_folds_total" ["{fold}"] "Folds of runs that could not go on, by reason. The replica tries again later.";
    Normal Gauge "tidegate_loadbalancing_endpoints" ["{endpoint}"] "Endpoints that data is distributed over, by exporter.";
    Normal Gauge "tidegate_loadbalancing_resolver_failing" ["1"] "1 while the endpoints of a name or service can't be updated, by exporter.";
    Normal Gauge "tidegate_prometheus_series" ["{series}"] "Series that the exporter keeps itself.";
    Normal Gauge "tidegate_prometheus_bytes" ["By"] "Memory of the series that the exporter keeps itself.";
    Normal Gauge "tidegate_prometheus_omitted_series" ["{series}"] "Series omitted from the exposition now, by reason.";
    Normal Gauge "tidegate_prometheus_left_out_series" ["{series}"] "Renamed to `tidegate_prometheus_omitted_series`; this name goes with the next release.";
    Normal Counter "tidegate_prometheus_conflicting_series_total" ["{series}"] "Series omitted from expositions because of a conflict.";
    Normal Counter "tidegate_prometheus_expired_series_total" ["{series}"] "Series that the exporter removed because no points arrived.";
    Normal Counter "tidegate_prometheus_overflowed_streams_total" ["{stream}"] "Streams without a series of their own, by the limit that was reached.";
    Normal Counter "tidegate_remote_write_dropped_samples_total" ["{sample}"] "Samples and native histograms of remote writes that were not taken, by reason.";
    Normal Counter "tidegate_remote_write_dropped_exemplars_total" ["{exemplar}"] "Exemplars of remote writes that came without a sample.";
    Normal Counter "tidegate_remote_write_forgotten_series_total" ["{series}"] "Series that a receiver or exporter of remote writes has forgotten to make room for others.";
    Normal Counter "tidegate_k8sattributes_enriched_resources_total" ["{resource}"] "Resources whose pod was found, by processor.";
    Normal Counter "tidegate_k8sattributes_unmatched_resources_total" ["{resource}"] "Resources whose pod was not found, by processor and reason.";
    Normal Gauge "tidegate_k8sattributes_pods" ["{pod}"] "Pods that resources can be matched with, by processor.";
    Normal Counter "tidegate_kubernetes_errors_total" ["{error}"] "Errors of lists and watches of Kubernetes, by kind of object and reason.";
    Normal Counter "tidegate_kubernetes_events_total" ["{event}"] "Events of watches of Kubernetes, by kind of object and type.";
    Normal Gauge "tidegate_kubernetes_last_event_timestamp_seconds" ["s"] "Unix time of the last event or list of Kubernetes, by kind of object.";
    Normal Counter "tidegate_kubernetes_lists_total" ["{list}"] "Lists of Kubernetes begun, by kind of object.";
    Normal Gauge "tidegate_kubernetes_objects" ["{object}"] "Objects of Kubernetes in memory, by kind.";
    Normal Counter "tidegate_kubernetes_refused_objects_total" ["{object}"] "Objects of Kubernetes that are not kept, by kind and reason.";
    Normal Gauge "tidegate_kubernetes_incomplete_watches" ["{watch}"] "Watches of Kubernetes without a complete list, by kind of object.";
    Normal Counter "tidegate_kubernetes_watches_total" ["{watch}"] "Watches of Kubernetes begun, by kind of object.";
    Normal Gauge "tidegate_scrape_targets" ["{target}"] "Targets by state.";
    Basic Counter "tidegate_scrapes_total" ["{scrape}"] "Scrapes begun.";
    Basic Counter "tidegate_scrape_failures_total" ["{scrape}"] "Scrapes that failed, by reason.";
    Normal Counter "tidegate_scrape_dropped_points_total" ["{datapoint}"] "Samples dropped from accepted pages, by reason.";
    Normal Counter "tidegate_scrape_discovery_failures_total" ["{failure}"] "Discoveries of targets that failed, by mechanism.";
    Normal Gauge "tidegate_shm_conflicts" ["{conflict}"] "Directories of cells with equal resources, and metrics on whose form the processes of a directory disagree, by reason.";
    Normal Gauge "tidegate_shm_directories" ["{directory}"] "Directories of cells that are read.";
    Normal Gauge "tidegate_shm_processes" ["{process}"] "Processes whose cells are read, by state.";
    Normal Gauge "tidegate_shm_refused" ["{file}"] "Files and directories of cells that are refused or wait now, by reason.";
    Normal Gauge "tidegate_shm_series" ["{series}"] "Series in cells.";
    Normal Gauge "tidegate_shm_unread_files" ["{file}"] "Files of cells that can't be read now.";
    Normal Counter "tidegate_shm_folded_processes_total" ["{process}"] "Ended processes whose totals were folded.";
    Normal Counter "tidegate_connections_ended_total" ["{connection}"] "Connections that failed to be accepted or secured, or that the gateway closed for idle peers or for new connections, by reason.";
    Normal Counter "tidegate_connections_refused_total" ["{connection}"] "Connections refused because their address has `max_connections_per_peer` connections.";
    Normal Counter "tidegate_connections_turned_away_total" ["{connection}"] "Renamed to `tidegate_connections_refused_total`; this name goes with the next release.";
    Normal Counter "tidegate_socket_rejected_connections_total" ["{connection}"] "Connections of processes that a Unix socket does not allow.";
    Normal Counter "tidegate_socket_turned_away_total" ["{connection}"] "Renamed to `tidegate_socket_rejected_connections_total`; this name goes with the next release.";
    Normal Gauge "tidegate_storage_bytes" ["By"] "Bytes on disk.";
    Normal Gauge "tidegate_storage_backlog_items" ["{item}"] "Items on disk that wait to be sent.";
    Normal Counter "tidegate_storage_failures_total" ["{failure}"] "Writes that the disk refused.";
    Normal Counter "tidegate_storage_lost_records_total" ["{record}"] "Records on disk that were damaged.";
    Normal Counter "tidegate_telemetry_push_failures_total" ["{push}"] "Pushes of the gateway's own telemetry that failed, by signal.";
    Normal Counter "tidegate_uds_rejected_events_total" ["{event}"] "Events and lines of a socket that could not be read, by reason.";
    Normal Counter "tidegate_watch_ended_total" ["{stream}"] "Streams of watchers that ended because their reader was too slow or memory too short, by reason.";
    Normal Counter "tidegate_webhook_delivered_total" ["{crossing}"] "Crossings of thresholds that were posted.";
    Normal Counter "tidegate_webhook_dropped_total" ["{crossing}"] "Crossings of thresholds that could not be posted.";
};

/// Renamed metrics: the name that components use, and the old name, which is shown too. Each has a line in the catalogue.
pub(super) const RENAMED: &[(&str, &str)] = &[
    (
        "tidegate_connections_refused_total",
        "tidegate_connections_turned_away_total",
    ),
    (
        "tidegate_prometheus_omitted_series",
        "tidegate_prometheus_left_out_series",
    ),
    (
        "tidegate_socket_rejected_connections_total",
        "tidegate_socket_turned_away_total",
    ),
];

/// The old name of the metric with this name, if it has been renamed.
pub(super) fn old_name(name: &str) -> Option<&'static str> {
    let renamed = RENAMED.iter().find(|(new, _)| *new == name);
    renamed.map(|(_, old)| *old)
}

/// The description of the metric with this name, as components use it.
pub(super) fn find(name: &str) -> Option<&'static Described> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Described>> = LazyLock::new(|| {
        CATALOGUE
            .iter()
            .map(|described| (described.name, described))
            .collect()
    });
    BY_NAME.get(name).copied()
}
