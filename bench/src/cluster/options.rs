// SPDX-License-Identifier: Apache-2.0

//! The options of a run.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::BenchError;

/// The defaults.
const MINUTES: f64 = 2.0;
const AGENTS: usize = 100;

/// The most agents.
const MAX_AGENTS: usize = 1_000;

/// The store of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EngineChoice {
    /// A NATS server, started from this binary.
    Nats(PathBuf),
    /// The replicas themselves.
    Direct,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    /// The time with faults.
    pub(super) time: Duration,
    pub(super) agents: usize,
    pub(super) engine: EngineChoice,
    pub(super) seed: u64,
}

impl Options {
    pub(super) fn parse(arguments: &[&str]) -> Result<Self, BenchError> {
        let (mut minutes, mut agents, mut engine) = (MINUTES, AGENTS, "nats");
        let (mut seed, mut server) = (None, None);
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{argument} wants a value"))
            };
            match *argument {
                "--agents" => agents = value()?.parse()?,
                "--engine" => engine = value()?,
                "--seed" => seed = Some(value()?.parse()?),
                "--server" => server = Some(PathBuf::from(value()?)),
                option if option.starts_with("--") => return Err(format!("no option {option}").into()),
                time => minutes = time.parse()?,
            }
        }
        if !(1..=MAX_AGENTS).contains(&agents) {
            return Err(format!("--agents wants a number from 1 to {MAX_AGENTS}").into());
        }
        let engine = match (engine, server) {
            ("nats", Some(server)) => EngineChoice::Nats(server),
            ("nats", None) => return Err("--server wants the binary of a NATS server".into()),
            ("direct", _) => EngineChoice::Direct,
            _ => return Err("--engine wants `nats` or `direct`".into()),
        };
        Ok(Self {
            time: Duration::try_from_secs_f64(minutes * 60.0)?,
            agents,
            engine,
            seed: seed.unwrap_or_else(new_seed),
        })
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
            agents: 7,
            engine: EngineChoice::Nats("nats".into()),
            seed: 3,
        };
        assert_eq!(options, expected);
        let direct = Options::parse(&["--engine", "direct"]).unwrap();
        assert_eq!((direct.agents, direct.engine), (AGENTS, EngineChoice::Direct));
        for wrong in [
            &["--agents", "0"][..],
            &["--agents", "1001"],
            &["--engine", "kafka"],
            &["--seed"],
            &["--fast"],
            &["-1"],
            &[],
        ] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
