// SPDX-License-Identifier: Apache-2.0

//! `tidegate cardinality`: which metrics, labels and sources make the series of a running gateway.

use serde_json::Value;

use super::Failure;
use super::client::{self, Client, GatewayArgs, table};
use crate::print_line;

/// Arguments of `tidegate cardinality`.
#[derive(Debug, clap::Args)]
pub struct CardinalityArgs {
    /// Largest number of entries in each list
    #[arg(long, default_value_t = 10)]
    top: usize,
    /// Print the gateway's answer unchanged, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: GatewayArgs,
}

const MIB: f64 = 1_048_576.0;

/// The headings of each list, and its name in the answer.
const LISTS: [(&str, &str, &str); 4] = [
    ("METRIC", "SERIES", "seriesCountByMetricName"),
    ("LABEL", "VALUES", "labelValueCountByLabelName"),
    ("LABEL WITH VALUE", "SERIES", "seriesCountByLabelValuePair"),
    ("SOURCE", "STREAMS", "streamCountBySource"),
];

/// Asks, and prints.
///
/// # Errors
/// The gateway can't be reached.
pub fn run(args: &CardinalityArgs) -> Result<(), Failure> {
    client::run(&args.place, |client| ask(args, client))
}

async fn ask(args: &CardinalityArgs, client: Client) -> Result<(), Failure> {
    let limit = args.top.to_string();
    let all = client.data("/api/v1/status/tsdb", &[("limit", &*limit)]).await?;
    if args.json {
        print_line!("{all}");
        return Ok(());
    }
    let (series, bytes) = (
        &all["headStats"]["numSeries"],
        all["bytes"].as_f64().unwrap_or(0.0),
    );
    let size = if bytes >= MIB {
        format!("{:.1} MiB", bytes / MIB)
    } else {
        format!("{:.0} KiB", bytes / 1024.0)
    };
    print_line!("{series} series, about {size}");
    if all["labelsCounted"] == false {
        print_line!("the gateway is short of memory: labels are not counted");
    }
    for (what, count, key) in LISTS {
        let entries = all[key].as_array().map_or(&[][..], Vec::as_slice);
        let row = |entry: &Value| {
            let name = match entry["name"].as_str().unwrap_or_default() {
                "" => "(no attributes)",
                name => name,
            };
            vec![name.to_owned(), entry["value"].to_string()]
        };
        let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
        print_line!("\n{}", table(&[what, count], &rows).trim_end());
    }
    Ok(())
}
