// SPDX-License-Identifier: Apache-2.0

//! `tidegate cluster`: the clusters of a running gateway, with their producers.

use serde_json::Value;

use super::Failure;
use super::client::{self, Client, GatewayArgs, number, table};
use crate::print_line;

/// Arguments of `tidegate cluster`.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    place: GatewayArgs,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show producers, runs, lag, leader and partitions, as the gateway knows them
    Status {
        /// Form of the output
        #[arg(long, value_enum, default_value_t = ClusterOutput::Table)]
        output: ClusterOutput,
    },
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ClusterOutput {
    /// Tables for people
    Table,
    /// The gateway's answer unchanged
    Json,
}

/// The path of the page.
const PATH: &str = "/api/v1/status/cluster";

/// What `-` means for the run of a producer.
const NO_RUN: &str = "RUN -: the store has not confirmed a run yet, so the producer sends nothing. If this stays, see \
    the connection above, the log of the gateway and `/api/v1/status/notices`.\n";

/// Asks, and prints.
///
/// # Errors
/// The gateway can't be reached, or has no `cluster` extension.
pub fn run(args: &ClusterArgs) -> Result<(), Failure> {
    let What::Status { output } = args.what;
    client::run(&args.place, |client| status(client, output))
}

async fn status(client: Client, output: ClusterOutput) -> Result<(), Failure> {
    let clusters = client.data(PATH, &[]).await?;
    if output == ClusterOutput::Json {
        print_line!("{clusters}");
        return Ok(());
    }
    let known = clusters.as_object().filter(|known| !known.is_empty());
    let known = known.ok_or_else(|| {
        client.failure("the gateway has no `cluster` extension: add one to its configuration")
    })?;
    for (id, cluster) in known {
        print_line!("{}", show(id, cluster).trim_end());
    }
    Ok(())
}

/// The text for one cluster.
fn show(id: &str, cluster: &Value) -> String {
    let engine = &cluster["engine"];
    let connection = match engine["connected"].as_bool() {
        Some(true) => "connected".to_owned(),
        _ => format!("not connected{}", reason(&engine["last_error"])),
    };
    let mut text = format!(
        "{id}: cluster {}, partitions {}, {connection}, leader: {}\n",
        cluster["name"].as_str().unwrap_or_default(),
        cluster["partitions"],
        yes(&cluster["leading"]),
    );
    for (path, component) in cluster["components"].as_object().into_iter().flatten() {
        text.push('\n');
        text.push_str(&match component["kind"].as_str() {
            Some("replica") => show_replica(path, component),
            _ => show_producer(path, component),
        });
    }
    text
}

fn reason(error: &Value) -> String {
    error
        .as_str()
        .map_or_else(String::new, |error| format!(" ({})", client::printable(error)))
}

fn yes(flag: &Value) -> &'static str {
    if flag == true { "yes" } else { "no" }
}

fn show_producer(path: &str, producer: &Value) -> String {
    let head = ["PRODUCER", "RUN", "SERIES", "WAITING PAGES", "OLDEST WAIT (S)"];
    let row = vec![
        producer["producer"].as_str().unwrap_or("-").to_owned(),
        producer["run"]
            .as_u64()
            .map_or_else(|| "-".to_owned(), |run| run.to_string()),
        producer["series"].to_string(),
        producer["waiting_pages"].to_string(),
        number(&producer["oldest_wait_seconds"]),
    ];
    let note = if producer["run"].is_null() { NO_RUN } else { "" };
    format!("{path}\n{}{note}", table(&head, &[row]))
}

fn show_replica(path: &str, replica: &Value) -> String {
    let sources = &replica["sources"];
    let mut text = format!(
        "{path}: {}, lag {} s, reporting {}/{}, series {}, retained records {}\n",
        replica["state"].as_str().unwrap_or_default(),
        number(&replica["lag_seconds"]),
        sources["reporting"],
        sources["expected"],
        replica["series"],
        replica["retained_records"],
    );
    let head = [
        "PRODUCER",
        "REPORTING",
        "RUNS",
        "NEWEST RUN",
        "AGE (S)",
        "UNREADABLE",
    ];
    let list = |key: &str| replica[key].as_array().cloned().unwrap_or_default();
    let mut rows: Vec<Vec<String>> = list("producers").iter().map(producer_row).collect();
    rows.extend(list("missing").iter().map(|name| {
        let name = name.as_str().unwrap_or_default().to_owned();
        [name, "no".to_owned()]
            .into_iter()
            .chain(["0", "-", "-", "0"].map(str::to_owned))
            .collect()
    }));
    text.push_str(&table(&head, &rows));
    text
}

fn producer_row(producer: &Value) -> Vec<String> {
    let runs = producer["runs"].as_array().map_or(&[][..], Vec::as_slice);
    let unreadable = ["unreadable", "newer"].map(|key| producer[key].as_u64().unwrap_or(0));
    vec![
        producer["name"].as_str().unwrap_or_default().to_owned(),
        yes(&producer["reporting"]).to_owned(),
        runs.len().to_string(),
        runs.last().map_or_else(|| "-".to_owned(), Value::to_string),
        number(&producer["age_seconds"]),
        unreadable.iter().sum::<u64>().to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_is_shown_with_its_replica_and_all_producers() {
        let cluster = json!({
            "name": "prod-a", "partitions": 2, "leading": true,
            "engine": {"connected": false, "last_error": "refused"},
            "components": {"receivers::partials": {
                "kind": "replica", "state": "partial", "lag_seconds": 0.5,
                "sources": {"reporting": 1, "expected": 2}, "series": 7, "retained_records": 1,
                "producers": [{"name": "a", "reporting": true, "runs": [5, 9], "age_seconds": 0.25,
                    "unreadable": 1, "newer": 2}],
                "missing": ["b"],
            }, "exporters::partials": {
                "kind": "producer", "producer": "c", "run": 11, "series": 4, "waiting_pages": 3,
                "oldest_wait_seconds": 1.5,
            }},
        });
        let text = show("cluster", &cluster);
        for part in [
            "cluster: cluster prod-a, partitions 2, not connected (refused), leader: yes",
            "receivers::partials: partial, lag 0.5 s, reporting 1/2, series 7",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let cells = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(cells("a "), ["a", "yes", "2", "9", "0.25", "3"]);
        assert_eq!(cells("b "), ["b", "no", "0", "-", "-", "0"]);
        assert_eq!(cells("c "), ["c", "11", "4", "3", "1.5"]);
        assert!(!text.contains(NO_RUN), "{text}");
    }

    #[test]
    fn a_producer_without_a_run_is_shown_with_the_meaning() {
        let text = show_producer(
            "exporters::partials",
            &json!({"producer": "c", "run": null, "series": 4, "waiting_pages": 3, "oldest_wait_seconds": 1.5}),
        );
        let line = text.lines().find(|line| line.starts_with("c ")).unwrap();
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells, ["c", "-", "4", "3", "1.5"]);
        assert!(text.contains(NO_RUN), "{text}");
    }
}
