// SPDX-License-Identifier: Apache-2.0

//! `tidegate query`: PromQL over what a running gateway holds.

use serde_json::Value;

use super::Failure;
use super::client::{self, Client, GatewayArgs, labels, number, printable, sparkline};
use crate::print_line;

/// Arguments of `tidegate query`.
#[derive(Debug, clap::Args)]
pub struct QueryArgs {
    /// The query
    query: String,
    /// Time of the query instead of now: seconds since the epoch, or RFC 3339
    #[arg(long, conflicts_with = "range")]
    time: Option<String>,
    /// Period before now, for example 5m; prints a sparkline per series
    #[arg(long)]
    range: Option<humantime::Duration>,
    /// Time between two points of a range
    #[arg(long, default_value = "1s")]
    step: humantime::Duration,
    /// Print the gateway's answer unchanged, as JSON
    #[arg(long)]
    json: bool,
    /// Exit with code 1 if the answer is empty
    #[arg(long)]
    fail_empty: bool,
    #[command(flatten)]
    place: GatewayArgs,
}

/// Asks, and prints.
///
/// # Errors
/// The gateway can't be reached, or does not answer the query.
pub fn run(args: &QueryArgs) -> Result<(), Failure> {
    client::run(&args.place, |client| ask(args, client))
}

async fn ask(args: &QueryArgs, client: Client) -> Result<(), Failure> {
    let (data, is_warned) = match args.range {
        None => {
            let time = args.time.as_deref().map(|time| ("time", time));
            let form: Vec<_> = [("query", &*args.query)].into_iter().chain(time).collect();
            client.answer("/api/v1/query", &form).await?
        }
        Some(range) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let end = now.unwrap_or_default().as_secs_f64();
            let times =
                [end - range.as_secs_f64(), end, args.step.as_secs_f64()].map(|time| time.to_string());
            let form = [
                ("query", &*args.query),
                ("start", &times[0]),
                ("end", &times[1]),
                ("step", &times[2]),
            ];
            client.answer("/api/v1/query_range", &form).await?
        }
    };
    let is_empty = data["result"].as_array().is_some_and(Vec::is_empty);
    if args.json {
        print_line!("{data}");
    } else if is_empty {
        let why = if is_warned {
            "no result"
        } else {
            why_empty(&client).await?
        };
        eprintln!("{why}");
    } else {
        print(&data);
    }
    if is_empty && args.fail_empty {
        Err(Failure::Reported)
    } else {
        Ok(())
    }
}

/// The reason why a query gives nothing, if there was no warning about its names.
async fn why_empty(client: &Client) -> Result<&'static str, Failure> {
    let names = client.data("/api/v1/label/__name__/values", &[]).await?;
    Ok(if names.as_array().is_some_and(Vec::is_empty) {
        "no result: the gateway shows no series"
    } else {
        "no result: no series matches at this time; compare the labels with `tidegate explain NAME`; \
         `tidegate query 'up == 0'` lists targets that are down"
    })
}

fn print(data: &Value) {
    let result = &data["result"];
    match data["resultType"].as_str() {
        Some("vector" | "matrix") => {
            let all = result.as_array().map_or(&[][..], Vec::as_slice);
            for series in all {
                let name = series["metric"]["__name__"].as_str().unwrap_or_default();
                let name = format!("{}{}", printable(name), labels(&series["metric"]));
                let name = if name.is_empty() { "{}" } else { &*name };
                print_line!("{name}  {}", value_text(series));
            }
        }
        _ => print_line!("{}", printable(result[1].as_str().unwrap_or_default())),
    }
}

/// The value of a series, or its values.
fn value_text(series: &Value) -> String {
    let Some(values) = series["values"].as_array() else {
        return match series["value"][1].as_str() {
            Some(value) => value.to_owned(),
            None => series["histogram"][1].to_string(),
        };
    };
    let numbers: Vec<f64> = values
        .iter()
        .filter_map(|value| value[1].as_str()?.parse().ok())
        .collect();
    let last = numbers.last().copied();
    format!("{}  {}", sparkline(&numbers), number(&last.into()))
}
