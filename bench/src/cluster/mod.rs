// SPDX-License-Identifier: Apache-2.0

//! A cluster under kills: are the totals exact?
//!
//! Simulated agents publish their totals. Two replicas show the sums. Replicas, the server and agents are killed, paused and
//! started again. A reader asks the replicas in turn, and no counter may fall or exceed what the agents have counted. At the
//! end, both replicas must show what the agents have counted, to the bit.

mod agent;
mod broker;
mod check;
mod faults;
mod figures;
mod fleet;
mod member;
mod model;
mod options;
mod reader;
mod replica;
mod rows;

use std::path::Path;
use std::time::{Duration, Instant};

use self::broker::Broker;
use self::check::{Violations, compare};
use self::faults::FaultInjector;
use self::figures::Figures;
use self::fleet::{AgentAct, Fleet, Store};
use self::options::{EngineChoice, Options};
use self::reader::{RoundRobin, page};
use self::replica::Replica;
use crate::BenchError;
use crate::gateway::free_port;

const REPLICAS: usize = 2;

/// Between two steps of the run.
const STEP: Duration = Duration::from_millis(20);

/// Between two looks at processor time and memory.
const LOOK: Duration = Duration::from_secs(1);

/// The longest time until a replica is ready, all pages are stored, or all totals are shown. It is two times `refresh`.
const PATIENCE: Duration = Duration::from_secs(60);

/// The totals must stay right for this long. Gauges of ended runs go after 3 s.
const REST: Duration = Duration::from_secs(5);

/// The processes and the agents.
struct Cluster {
    replicas: Vec<Replica>,
    broker: Option<Broker>,
    fleet: Fleet,
    violations: Violations,
    next_look: Instant,
}

/// Runs a cluster and prints its figures.
pub(crate) fn run(binary: &Path, output: &Path, arguments: &[&str]) -> Result<(), BenchError> {
    let options = Options::parse(arguments)?;
    println!("seed {}", options.seed);
    let logs = output.join("logs");
    let _ = std::fs::remove_dir_all(&logs);
    std::fs::create_dir_all(&logs)?;
    let mut cluster = Cluster::start(binary, &logs, &options)?;
    let reader = RoundRobin::start(
        cluster.replicas.iter().map(|replica| replica.page).collect(),
        cluster.fleet.model.clone(),
        cluster.violations.clone(),
    );
    let begun = Instant::now();
    let mut faults = FaultInjector::new(options.seed, begun);
    while begun.elapsed() < options.time {
        faults.step(&mut cluster, Instant::now())?;
        cluster.step()?;
    }
    let ran = begun.elapsed();
    reader.quiet();
    let mut figures = Figures::of(&cluster, &options, ran, &faults);
    faults.end(&mut cluster)?;
    cluster.check_end()?;
    figures.add("samples of a page", cluster.samples().to_string());
    cluster.check_after_goodbyes()?;
    figures.add_read(&reader.end()?);
    let sent = cluster.fleet.model.lock().sent();
    if sent.wrong > 0 {
        let wrong = sent.wrong;
        cluster.violations.add(format!(
            "the senders count {wrong} series that were refused, and pages that wait"
        ));
    }
    let (count, kept) = cluster.violations.all();
    figures.finish(output, count, &kept)
}

impl Cluster {
    fn start(binary: &Path, logs: &Path, options: &Options) -> Result<Self, BenchError> {
        let violations = Violations::default();
        let mut broker = None;
        let store = match &options.engine {
            EngineChoice::Nats(server) => {
                let mut started = Broker::new(server, logs)?;
                started.start()?;
                let url = started.url();
                broker = Some(started);
                Store::Nats(url)
            }
            EngineChoice::Direct => {
                let ports = (0..REPLICAS).map(|_| free_port());
                let address = |port: Result<u16, BenchError>| Ok(format!("127.0.0.1:{}", port?));
                Store::Direct(ports.map(address).collect::<Result<_, BenchError>>()?)
            }
        };
        let replicas = (0..REPLICAS).map(|number| {
            let mut replica = Replica::new(number, binary, &store, logs)?;
            replica.start()?;
            Ok(replica)
        });
        let mut cluster = Self {
            replicas: replicas.collect::<Result<_, BenchError>>()?,
            broker,
            fleet: Fleet::start(options.agents, &store, options.seed, &violations)?,
            violations,
            next_look: Instant::now(),
        };
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    /// Looks at all processes.
    fn step(&mut self) -> Result<(), BenchError> {
        std::thread::sleep(STEP);
        for replica in &mut self.replicas {
            replica.look();
            replica.member.check(&self.violations)?;
        }
        if let Some(broker) = &mut self.broker {
            broker.member.check(&self.violations)?;
        }
        if self.next_look <= Instant::now() {
            self.next_look = Instant::now() + LOOK;
            let brokers = self.broker.iter_mut().map(|broker| &mut broker.member);
            let replicas = self.replicas.iter_mut().map(|replica| &mut replica.member);
            brokers.chain(replicas).for_each(member::Member::look);
        }
        Ok(())
    }

    fn start_server(&mut self) -> Result<(), BenchError> {
        if let Some(broker) = &mut self.broker {
            broker.start()?;
            self.replicas.iter_mut().for_each(Replica::note_server);
        }
        Ok(())
    }

    /// Whether a replica may be killed or paused. Without a broker, only the replicas have the totals of ended runs: one of
    /// them must have everything at any time.
    fn may_harm(&self, number: usize) -> bool {
        let is_alive = self.replicas[number].member.is_alive();
        is_alive && (self.broker.is_some() || self.replicas.iter().all(Replica::is_ready))
    }

    fn wait_until_ready(&mut self) -> Result<(), BenchError> {
        let begun = Instant::now();
        while !self.replicas.iter().all(Replica::is_ready) {
            self.step()?;
            if begun.elapsed() > PATIENCE {
                return Err("a replica is not ready in time".into());
            }
        }
        Ok(())
    }

    /// Both replicas show exactly what has been counted, also after they have lost their memory.
    fn check_end(&mut self) -> Result<(), BenchError> {
        let late = self.fleet.all(AgentAct::Freeze, PATIENCE);
        if late > 0 {
            self.violations
                .add(format!("{late} agents could not store their pages in time"));
        }
        self.wait_until_ready()?;
        self.check_totals("at rest");
        self.check_own_metrics()?;
        for number in 0..REPLICAS {
            self.replicas[number].kill(&self.violations);
            if self.broker.is_none() {
                self.replicas[number].start()?;
                self.wait_until_ready()?;
            }
        }
        if self.broker.is_some() {
            self.replicas.iter_mut().try_for_each(Replica::start)?;
        }
        self.wait_until_ready()?;
        self.check_totals("after a restart of all replicas");
        Ok(())
    }

    /// The totals stay when all agents have ended, and their gauges go.
    fn check_after_goodbyes(&mut self) -> Result<(), BenchError> {
        let late = self.fleet.all(AgentAct::End, PATIENCE);
        if late > 0 {
            self.violations
                .add(format!("{late} agents could not end in time"));
        }
        self.check_totals("after all goodbyes");
        self.check_own_metrics()
    }

    /// Waits until both pages equal the model, and says in what they differ if they do not or do not stay so.
    fn check_totals(&self, when: &str) {
        let begun = Instant::now();
        while !self.wrong_totals().is_empty() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(200));
        }
        let is_late = !self.wrong_totals().is_empty();
        if !is_late {
            std::thread::sleep(REST);
        }
        let wrong = self.wrong_totals();
        self.violations.add_all(when, &wrong);
    }

    fn wrong_totals(&self) -> Vec<String> {
        let model = self.fleet.model.lock();
        let mut expected = model.totals();
        expected.extend(model.gauges());
        drop(model);
        let pages = self.replicas.iter().map(|replica| page(replica.page));
        match pages.collect::<Result<Vec<_>, _>>() {
            Ok(pages) => {
                let mut wrong = Vec::new();
                for (number, page) in pages.iter().enumerate() {
                    let different = compare(page, &expected).into_iter();
                    wrong.extend(different.map(|different| format!("replica-{number}: {different}")));
                }
                let pairs = pages.windows(2).flat_map(|pair| pair[0].differences(&pair[1]));
                wrong.extend(pairs.map(|different| format!("the replicas show {different}")));
                wrong
            }
            Err(error) => vec![format!("a page: {error}")],
        }
    }

    /// The replicas refuse nothing, and know all series and agents.
    fn check_own_metrics(&mut self) -> Result<(), BenchError> {
        let model = self.fleet.model.lock();
        let series = model.series();
        drop(model);
        for replica in &mut self.replicas {
            self.violations
                .add_all(&replica.member.name.clone(), &replica.wrong_counts()?);
            let shown = replica.own_metric("tidegate_cluster_series")? as usize;
            if shown != series {
                let name = &replica.member.name;
                self.violations.add(format!(
                    "{name} says that it has {shown} series, and there are {series}"
                ));
            }
        }
        Ok(())
    }

    /// The number of samples of a page.
    fn samples(&self) -> usize {
        let pages = self
            .replicas
            .iter()
            .map(|replica| page(replica.page).map_or(0, |page| page.len()));
        pages.max().unwrap_or_default()
    }
}
