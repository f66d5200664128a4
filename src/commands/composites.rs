// SPDX-License-Identifier: Apache-2.0

//! `tidegate composites`: the declared values of a running gateway, as they are and as they change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IsTerminal;
use std::time::SystemTime;

use serde_json::Value;

use super::client::{self, Client, GatewayArgs, StreamEvent, labels, number, printable, sparkline, table};
use super::{Failure, output};
use crate::print_line;
use crate::watch::Filter;

/// Arguments of `tidegate composites`.
#[derive(Debug, clap::Args)]
pub struct CompositesArgs {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    place: GatewayArgs,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List all composites (the default)
    Ls {
        /// Print the gateway's answer unchanged, as JSON
        #[arg(long)]
        json: bool,
        /// Print names only, those that a shell needs not quote
        #[arg(long, hide = true)]
        names: bool,
    },
    /// Show one composite with all details
    Get {
        /// Name of the composite
        name: String,
        /// Only groups with this label, `KEY=VALUE`
        #[arg(long = "label")]
        labels: Vec<String>,
        /// Print the gateway's answer unchanged, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print one composite at each change
    Watch {
        /// Name of the composite
        name: String,
        /// Only groups with this label, `KEY=VALUE`
        #[arg(long = "label")]
        labels: Vec<String>,
        /// Shortest time between two printed changes
        #[arg(long, default_value = "200ms")]
        min_interval: humantime::Duration,
        /// Stop after this number of events
        #[arg(long)]
        events: Option<usize>,
    },
}

/// Where the pages are.
const PATH: &str = "/api/v1/composites";

/// Values of a group that a sparkline shows.
const WIDTH: usize = 40;

/// Asks, and prints.
///
/// # Errors
/// The gateway can't be reached, or has no such composite or group.
pub fn run(args: &CompositesArgs) -> Result<(), Failure> {
    client::run(&args.place, |client| async move {
        match &args.what {
            None => list(client, false).await,
            Some(What::Ls { names: true, .. }) => list_names(client).await,
            Some(What::Ls { json, .. }) => list(client, *json).await,
            Some(What::Get { name, labels, json }) => get(client, name, labels, *json).await,
            Some(What::Watch {
                name,
                labels,
                min_interval,
                events,
            }) => output::while_read(watch(client, name, labels, min_interval.to_string(), *events)).await,
        }
    })
}

const HEAD: [&str; 9] = [
    "COMPOSITE",
    "VALUE",
    "MIN",
    "AVG",
    "MAX",
    "COUNT",
    "STATE",
    "AGE",
    "SOURCES",
];

fn row(set: &Value) -> Vec<String> {
    let name = set["name"].as_str().unwrap_or_default();
    let sources = &set["sources"];
    let age = match set["age_ms"].as_f64() {
        Some(age) => format!("{:.3}s", age / 1e3),
        None => "-".to_owned(),
    };
    vec![
        format!("{name}{}", labels(&set["labels"])),
        number(&set["value"]),
        number(&set["min"]),
        number(&set["avg"]),
        number(&set["max"]),
        number(&set["count"]),
        set["state"].as_str().unwrap_or_default().to_owned(),
        age,
        format!("{}/{}", sources["reporting"], sources["expected"]),
    ]
}

fn sets(answer: &Value) -> &[Value] {
    answer.as_array().map_or(&[][..], Vec::as_slice)
}

async fn list(client: Client, json: bool) -> Result<(), Failure> {
    let answer = client.get(PATH, &[]).await?;
    if json {
        print_line!("{answer}");
        return Ok(());
    }
    let rows: Vec<Vec<String>> = sets(&answer).iter().map(row).collect();
    print_line!("{}", table(&HEAD, &rows).trim_end());
    print_errors(sets(&answer));
    Ok(())
}

/// For the completion of shells, to which a gateway must not give commands.
async fn list_names(client: Client) -> Result<(), Failure> {
    let answer = client.get(PATH, &[]).await?;
    let is_plain = |name: &&str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    let names: BTreeSet<&str> = sets(&answer)
        .iter()
        .filter_map(|set| set["name"].as_str())
        .filter(is_plain)
        .collect();
    for name in names {
        print_line!("{name}");
    }
    Ok(())
}

async fn get(client: Client, name: &str, labels: &[String], json: bool) -> Result<(), Failure> {
    let form: Vec<_> = labels.iter().map(|label| ("label", &**label)).collect();
    let answer = client.get(&format!("{PATH}/{name}"), &form).await?;
    if json {
        print_line!("{answer}");
        return Ok(());
    }
    if sets(&answer).is_empty() {
        let why = no_match(&client, name, labels).await?;
        return Err(client.failure(format_args!("{name}: {why}")));
    }
    let rows: Vec<Vec<String>> = sets(&answer).iter().map(row).collect();
    print_line!("{}", table(&HEAD, &rows).trim_end());
    for set in sets(&answer) {
        let quantiles = set["quantiles"].as_object().into_iter().flatten();
        let quantiles: Vec<String> = quantiles
            .map(|(rank, value)| format!("q{rank} {}", number(value)))
            .collect();
        let group = client::labels(&set["labels"]);
        print_line!(
            "{}: {}{} over {}, sum {}, last {}{}{}",
            if group.is_empty() { name } else { &group },
            set["function"].as_str().unwrap_or_default(),
            set["across"]
                .as_str()
                .map_or_else(String::new, |across| format!(" (across series: {across})")),
            set["window"].as_str().unwrap_or_default(),
            number(&set["sum"]),
            number(&set["last"]),
            if quantiles.is_empty() { "" } else { ", " },
            quantiles.join(", ")
        );
    }
    print_errors(sets(&answer));
    Ok(())
}

/// The message that no group has the labels.
async fn no_match(client: &Client, name: &str, labels: &[String]) -> Result<String, Failure> {
    let all = client.get(&format!("{PATH}/{name}"), &[]).await?;
    // The gateway has accepted the labels.
    let filter = Filter::parse(labels.iter().map(String::as_str)).unwrap_or_default();
    let groups = sets(&all).iter().map(|set| client::labels(&set["labels"]));
    // A composite without groups has an entry too.
    Ok(filter.no_match(groups.filter(|group| !group.is_empty())))
}

/// Says what a watch waits for, if no group has the labels now.
async fn print_no_match(client: &Client, name: &str, labels: &[String]) -> Result<(), Failure> {
    let form: Vec<_> = labels.iter().map(|label| ("label", &**label)).collect();
    // The name may be that of several composites, of which only some have no such group.
    let answer = client.get(&format!("{PATH}/{name}"), &form).await?;
    if sets(&answer).is_empty() {
        let why = no_match(client, name, labels).await?;
        eprintln!("{name}: {}; waiting for one", printable(&why));
    }
    Ok(())
}

/// Whether an event shows no group: the first one, if no group has the labels.
fn is_empty_change(event: &StreamEvent) -> bool {
    let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
    event.name == "change" && data.as_array().is_some_and(Vec::is_empty)
}

/// Why values are missing, once each.
fn print_errors(sets: &[Value]) {
    let errors: BTreeSet<&str> = sets.iter().filter_map(|set| set["error"].as_str()).collect();
    errors
        .iter()
        .for_each(|error| print_line!("error: {}", printable(error)));
}

async fn watch(
    client: Client,
    name: &str,
    labels: &[String],
    min_interval: String,
    most: Option<usize>,
) -> Result<(), Failure> {
    let form: Vec<_> = labels
        .iter()
        .map(|label| ("label", &**label))
        .chain([("min_interval", &*min_interval)])
        .collect();
    let mut stream = client.events(&format!("{PATH}/{name}/watch"), &form).await?;
    let mut screen = Screen {
        groups: BTreeMap::new(),
        lines: 0,
        is_terminal: std::io::stdout().is_terminal(),
    };
    if !screen.is_terminal {
        print_line!("TIME  {}", HEAD.join("  "));
    }
    let mut events = 0;
    while !output::has_failed() {
        let event = stream.next_event().await?;
        if event.name == "ended" {
            let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
            let why = data["error"].as_str().unwrap_or("the gateway ended the stream");
            return Err(client.failure(printable(why)));
        }
        if is_empty_change(&event) {
            // The watch goes on without this line.
            let _ = print_no_match(&client, name, labels).await;
            continue;
        }
        if screen.show(&event) {
            events += 1;
        }
        if most.is_some_and(|most| events >= most) {
            break;
        }
    }
    Ok(())
}

/// The time at which a change arrives, in UTC.
fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// The groups as they change: in place on a terminal, line by line elsewhere.
struct Screen {
    groups: BTreeMap<String, (VecDeque<f64>, Vec<String>)>,
    lines: usize,
    is_terminal: bool,
}

impl Screen {
    /// Shows an event. Says whether its data are JSON.
    fn show(&mut self, event: &StreamEvent) -> bool {
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            return false;
        };
        let name = event.name.as_str();
        match name {
            "change" => self.change(&data),
            "threshold" => {
                let [threshold, state] =
                    ["threshold", "state"].map(|key| printable(data[key].as_str().unwrap_or_default()));
                let value = number(&data["shown"]["value"]);
                print_line!(
                    "{}  {threshold} {state}: {value} {}",
                    now(),
                    labels(&data["shown"]["labels"])
                );
                self.lines = 0;
            }
            _ => print_line!("{}  {}", now(), printable(&format!("{name}: {data}"))),
        }
        true
    }

    fn change(&mut self, changed: &Value) {
        let time = now();
        for set in sets(changed) {
            let row = row(set);
            let (values, shown) = self.groups.entry(row[0].clone()).or_default();
            values.extend(set["value"].as_f64());
            let surplus = values.len().saturating_sub(WIDTH);
            values.drain(..surplus);
            let line: Vec<f64> = values.iter().copied().collect();
            *shown = row;
            shown.insert(0, time.clone());
            shown.push(sparkline(&line));
        }
        if !self.is_terminal {
            for set in sets(changed) {
                print_line!("{time}  {}", printable(&row(set).join("  ")));
            }
            return;
        }
        let rows: Vec<Vec<String>> = self.groups.values().map(|(_, row)| row.clone()).collect();
        let head: Vec<&str> = std::iter::once("TIME").chain(HEAD).chain([""]).collect();
        let text = table(&head, &rows);
        if self.lines > 0 {
            // Back to where the table began, and away with it.
            output::print(format_args!("\x1b[{}A\x1b[J", self.lines));
        }
        output::print(format_args!("{text}"));
        self.lines = text.lines().count();
    }
}
