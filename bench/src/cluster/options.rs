// SPDX-License-Identifier: Apache-2.0

//! The options of a run.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::schedule::Fault;
use crate::BenchError;

/// The defaults.
const MINUTES: f64 = 2.0;
const AGENTS: usize = 100;
const INTERVAL: Duration = Duration::from_secs(1);

/// The most agents.
pub(super) const MAX_AGENTS: usize = 10_000;

/// The most NATS servers: JetStream has 5 copies at most.
const MAX_SERVERS: usize = 5;

/// The most GPUs of an agent.
const MAX_GPUS: usize = 8;

/// The longest interval of a producer. One that is silent for 3 s counts as missing.
const MAX_INTERVAL: Duration = Duration::from_secs(2);

/// The store of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EngineChoice {
    /// A NATS server, started from this binary.
    Nats(PathBuf),
    /// A Kafka broker, started from the jars in this directory.
    Kafka(PathBuf),
    /// The replicas themselves.
    Direct,
}

impl EngineChoice {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Nats(_) => "nats",
            Self::Kafka(_) => "kafka",
            Self::Direct => "direct",
        }
    }

    /// Whether the replicas confirm each page by the store. Then no page is older than another one.
    pub(super) fn confirms(&self) -> bool {
        *self != Self::Direct
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    /// The time with faults.
    pub(super) time: Duration,
    /// The number of agents of each run.
    pub(super) agents: Vec<usize>,
    pub(super) engine: EngineChoice,
    /// The number of NATS servers. Each has a copy of all.
    pub(super) servers: usize,
    /// Whether NATS servers write to the disk before they acknowledge.
    pub(super) syncs: bool,
    /// Whether the run has a network and file systems of its own: cuts lose packets, and a disk gets full.
    pub(super) namespaces: bool,
    pub(super) seed: u64,
    /// The interval of the pages.
    pub(super) interval: Duration,
    /// The time between two counts of an agent. Pages that do not change are not published.
    pub(super) updates: Duration,
    /// The GPUs of an agent. Each has all series.
    pub(super) gpus: usize,
    /// The kinds of faults.
    pub(super) faults: Vec<Fault>,
    /// The binary of a Prometheus that scrapes too.
    pub(super) prometheus: Option<PathBuf>,
    /// The command, if its figures are written into the documentation.
    pub(super) publish: Option<String>,
}

/// The values of the command line.
struct Values<'a> {
    minutes: f64,
    agents: Vec<usize>,
    engine: &'a str,
    servers: usize,
    syncs: bool,
    namespaces: bool,
    seed: Option<u64>,
    interval: Duration,
    updates: Option<Duration>,
    gpus: usize,
    faults: Option<&'a str>,
    server: Option<PathBuf>,
    jars: Option<PathBuf>,
    prometheus: Option<PathBuf>,
    publish: bool,
}

/// The time before the reader begins in a calm run with Kafka: until then, the broker's JVM compiles its code.
const WARM_UP: Duration = Duration::from_secs(10);

impl Options {
    /// The time before the reader begins, a half of the run at most.
    pub(super) fn warm_up(&self) -> Duration {
        match self.engine {
            EngineChoice::Kafka(_) if self.faults.is_empty() => WARM_UP.min(self.time / 2),
            _ => Duration::ZERO,
        }
    }

    pub(super) fn parse(arguments: &[&str]) -> Result<Self, BenchError> {
        let values = Values::parse(arguments)?;
        if !values
            .agents
            .iter()
            .all(|agents| (1..=MAX_AGENTS).contains(agents))
        {
            return Err(format!("--agents wants numbers from 1 to {MAX_AGENTS}").into());
        }
        if values.interval.is_zero() || values.interval > MAX_INTERVAL {
            return Err(format!("--interval wants at most {} s", MAX_INTERVAL.as_secs()).into());
        }
        let updates = values.updates.unwrap_or(values.interval);
        if updates < values.interval {
            return Err("--updates wants at least the interval of the pages".into());
        }
        if !(1..=MAX_GPUS).contains(&values.gpus) {
            return Err(format!("--gpus wants a number from 1 to {MAX_GPUS}").into());
        }
        let engine = match (values.engine, values.server, values.jars) {
            ("nats", Some(server), _) => EngineChoice::Nats(server),
            ("nats", None, _) => return Err("--server wants the binary of a NATS server".into()),
            ("kafka", _, Some(jars)) => EngineChoice::Kafka(jars),
            ("kafka", _, None) => return Err("--jars wants the directory with the jars of Kafka".into()),
            ("direct", ..) => EngineChoice::Direct,
            _ => return Err("--engine wants `nats`, `kafka` or `direct`".into()),
        };
        let most = if matches!(engine, EngineChoice::Nats(_)) {
            MAX_SERVERS
        } else {
            1
        };
        if !(1..=most).contains(&values.servers) {
            return Err(format!("--servers wants a number from 1 to {most} with this engine").into());
        }
        if !values.syncs && !matches!(engine, EngineChoice::Nats(_)) {
            return Err("--no-sync wants `--engine nats`".into());
        }
        Ok(Self {
            time: Duration::try_from_secs_f64(values.minutes * 60.0)?,
            agents: values.agents,
            faults: faults(
                values.faults,
                &Fault::of(&engine, values.servers, values.namespaces),
            )?,
            servers: values.servers,
            syncs: values.syncs,
            namespaces: values.namespaces,
            engine,
            seed: values.seed.unwrap_or_else(new_seed),
            interval: values.interval,
            updates,
            gpus: values.gpus,
            prometheus: values.prometheus,
            publish: values.publish.then(|| command(arguments)),
        })
    }
}

impl<'a> Values<'a> {
    fn parse(arguments: &[&'a str]) -> Result<Self, BenchError> {
        let mut values = Self {
            minutes: MINUTES,
            agents: vec![AGENTS],
            engine: "nats",
            servers: 1,
            syncs: true,
            namespaces: false,
            seed: None,
            interval: INTERVAL,
            updates: None,
            gpus: 1,
            faults: None,
            server: None,
            jars: None,
            prometheus: None,
            publish: false,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .copied()
                    .ok_or_else(|| format!("{argument} wants a value"))
            };
            match *argument {
                "--agents" => {
                    let numbers = value()?.split(',').map(str::parse);
                    values.agents = numbers.collect::<Result<_, _>>()?;
                }
                "--engine" => values.engine = value()?,
                "--servers" => values.servers = value()?.parse()?,
                "--no-sync" => values.syncs = false,
                "--namespaces" => values.namespaces = true,
                "--seed" => values.seed = Some(value()?.parse()?),
                "--interval" => values.interval = seconds(value()?)?,
                "--updates" => values.updates = Some(seconds(value()?)?),
                "--gpus" => values.gpus = value()?.parse()?,
                "--faults" => values.faults = Some(value()?),
                "--server" => values.server = Some(value()?.into()),
                "--jars" => values.jars = Some(value()?.into()),
                "--prometheus" => values.prometheus = Some(value()?.into()),
                "--publish" => values.publish = true,
                option if option.starts_with("--") => return Err(format!("no option {option}").into()),
                time => values.minutes = time.parse()?,
            }
        }
        Ok(values)
    }
}

fn seconds(text: &str) -> Result<Duration, BenchError> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}

/// The command, without the paths of peers.
fn command(arguments: &[&str]) -> String {
    let mut text = "cargo xtask cluster".to_owned();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if ["--server", "--jars", "--prometheus"].contains(argument) {
            arguments.next();
        } else {
            text += " ";
            text += argument;
        }
    }
    text
}

/// The kinds of faults that are named, or all that the run can have.
fn faults(names: Option<&str>, all: &[Fault]) -> Result<Vec<Fault>, BenchError> {
    match names {
        None => Ok(all.to_vec()),
        Some("none") => Ok(Vec::new()),
        Some(names) => {
            let named = names.split(',').map(|name| {
                let known = all.iter().find(|fault| fault.name() == name);
                known.copied().ok_or_else(|| {
                    let all: Vec<_> = all.iter().map(|fault| fault.name()).collect();
                    format!("no fault `{name}`; there are: none, {}", all.join(", ")).into()
                })
            });
            named.collect()
        }
    }
}

/// A seed that no other run is likely to have.
fn new_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_defaults_and_limits() {
        let options = Options::parse(&["0.5", "--agents", "7", "--seed", "3", "--server", "nats"]).unwrap();
        let expected = Options {
            time: Duration::from_secs(30),
            agents: vec![7],
            engine: EngineChoice::Nats("nats".into()),
            servers: 1,
            syncs: true,
            namespaces: false,
            seed: 3,
            interval: INTERVAL,
            updates: INTERVAL,
            gpus: 1,
            faults: Fault::ALL.to_vec(),
            prometheus: None,
            publish: None,
        };
        assert_eq!(options, expected);
        let direct = Options::parse(&["--engine", "direct"]).unwrap();
        assert_eq!(
            (direct.agents, direct.engine),
            (vec![AGENTS], EngineChoice::Direct)
        );
        for wrong in [
            &["--agents", "0"][..],
            &["--agents", "10,10001"],
            &["--engine", "kafka"],
            &["--engine", "direct", "--faults", "server"],
            &["--interval", "3"],
            &["--interval", "2", "--updates", "1"],
            &["--gpus", "9"],
            &["--engine", "direct", "--servers", "3"],
            &["--engine", "direct", "--no-sync"],
            &["--server", "nats", "--servers", "6"],
            &["--server", "nats", "--servers", "3", "--faults", "full"],
            &["--seed"],
            &["--fast"],
            &["-1"],
            &[],
        ] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn runs_and_faults_are_chosen_by_lists() {
        let arguments = ["--engine", "kafka", "--jars", "jars", "--agents", "10,20"];
        let options = Options::parse(&[&arguments[..], &["--faults", "cut,kill"]].concat()).unwrap();
        assert_eq!(options.agents, [10, 20]);
        assert_eq!(options.faults, [Fault::Cut, Fault::KillReplica]);
        let kafka = |more: &[&str]| Options::parse(&[&arguments[..], more].concat());
        assert!(kafka(&["--faults", "full"]).is_err());
        let full = kafka(&["--faults", "full", "--namespaces"]).unwrap();
        assert_eq!(full.faults, [Fault::Fill]);
        let calm = Options::parse(&[&arguments[..], &["--faults", "none", "--publish"]].concat()).unwrap();
        assert_eq!(calm.faults, []);
        let command = "cargo xtask cluster --engine kafka --agents 10,20 --faults none --publish";
        assert_eq!(calm.publish.as_deref(), Some(command));
    }
}
