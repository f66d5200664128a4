// SPDX-License-Identifier: Apache-2.0

//! A cluster under faults: are the totals exact?
//!
//! Simulated agents and a real gateway publish their totals. Two replicas show the sums. Replicas, the broker and agents are
//! killed, suspended, cut off and started again. A reader asks the replicas in turn, and no counter may fall or exceed what
//! has been counted. At the end, both replicas must show what has been counted. A Prometheus sees no reset.

mod agent;
mod balancer;
mod bounds;
mod broker;
mod check;
mod end;
mod faults;
mod figures;
mod fleet;
mod kafka;
mod late;
mod member;
mod model;
mod namespaces;
mod nats;
mod options;
mod producer;
mod prometheus;
mod proxy;
mod reader;
mod replica;
mod report;
mod rows;
mod schedule;
pub(crate) mod simulated;
mod store;

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use self::bounds::{AgeBounds, TimelyBound};
use self::broker::{Broker, write_time};
use self::check::Violations;
use self::faults::FaultInjector;
use self::figures::Figures;
use self::fleet::Fleet;
use self::namespaces::LossyNetwork;
use self::options::{EngineChoice, Options};
use self::producer::Producer;
use self::prometheus::Prometheus;
use self::proxy::Proxy;
use self::reader::{RoundRobin, max_age, page};
use self::replica::Replica;
use self::report::{ReportHead, RunResult};
use self::store::Store;
use crate::BenchError;
use crate::gateway::free_port;
use crate::progress::{LongTask, TaskProgress};

const REPLICAS: usize = 2;

/// Between two steps of the run.
const STEP: Duration = Duration::from_millis(20);

/// Between two looks at processor time and memory.
const LOOK: Duration = Duration::from_secs(1);

/// A page that takes longer has failed: a time for all, and one for each GPU of each agent.
const PAGE: Duration = Duration::from_secs(1);
const PAGE_OF_AN_AGENT: Duration = Duration::from_micros(500);

/// The most agents, times their GPUs, whose series a Prometheus beside them holds.
const MAX_SCRAPED: usize = 10_000;

/// The processes and the agents.
///
/// They end in this order: a producer sends its last pages to the broker.
struct Cluster {
    prometheus: Option<Prometheus>,
    producer: Option<Producer>,
    replicas: Vec<Replica>,
    fleet: Fleet,
    /// The network of each replica.
    proxies: Vec<Proxy>,
    /// The servers of the store. `direct` has none.
    brokers: Vec<Broker>,
    violations: Violations,
    page_timeout: Duration,
    next_look: Instant,
}

/// Runs a cluster with each number of agents, and prints their figures.
pub(crate) fn run(binary: &Path, output: &Path, arguments: &[&str]) -> Result<(), BenchError> {
    let options = Options::parse(arguments)?;
    rows::GPUS
        .set(options.gpus)
        .map_err(|_| "the rows of agents are in use")?;
    let head = ReportHead::new(binary, &options)?;
    println!("seed {}", options.seed);
    let logs = output.join("logs");
    let _ = std::fs::remove_dir_all(&logs);
    let mut results = Vec::new();
    for (index, agents) in options.agents.iter().enumerate() {
        let faults = Arc::new(AtomicU64::new(0));
        let _progress = progress(&options, index, faults.clone());
        let logs = logs.join(agents.to_string());
        std::fs::create_dir_all(&logs)?;
        let logs = std::path::absolute(logs)?;
        results.push(run_with(*agents, binary, &logs, &options, &faults)?);
    }
    report::finish(output, &head, &results)
}

/// The lines of the run with this index, which counts its faults. Start and end of the cluster take some seconds more.
fn progress(options: &Options, index: usize, faults: Arc<AtomicU64>) -> TaskProgress {
    LongTask::new(format!("cluster of {} agents", options.agents[index]))
        .step(index + 1, options.agents.len())
        .expected(options.time)
        .begin(move || format!("{} faults", faults.load(Relaxed)))
}

fn run_with(
    agents: usize,
    binary: &Path,
    logs: &Path,
    options: &Options,
    fault_count: &AtomicU64,
) -> Result<RunResult, BenchError> {
    let write = write_time(logs)?;
    let mut cluster = Cluster::start(agents, binary, logs, options)?;
    let begun = Instant::now();
    let warm_up = options.warm_up();
    while begun.elapsed() < warm_up {
        cluster.step()?;
    }
    let reader = RoundRobin::start(
        cluster.pages(),
        (cluster.page_timeout, max_age(options.engine.confirms())),
        cluster.fleet.model.clone(),
        cluster.violations.clone(),
    );
    let mut faults = FaultInjector::new(options, logs, begun)?;
    while begun.elapsed() < options.time {
        faults.step(&mut cluster, Instant::now())?;
        fault_count.store(faults.counts.values().sum(), Relaxed);
        cluster.step()?;
    }
    let ran = begun.elapsed();
    reader.quiet();
    let mut figures = Figures::of(&cluster, options, ran, &faults);
    figures.add_warm_up(warm_up);
    figures.add_write(write, options);
    faults.end(&mut cluster)?;
    std::fs::write(logs.join("agents.log"), cluster.fleet.model.lock().log())?;
    cluster.check_end()?;
    let samples = cluster.samples();
    cluster.check_after_goodbyes()?;
    figures.add_end(&cluster, samples);
    figures.add_full_starts(&cluster, agents, options);
    let read = reader.end()?;
    if read.composite_ages.is_empty() {
        cluster
            .violations
            .add("no page shows the composite of the gateway".to_owned());
    }
    figures.add_read(&read);
    if let Some(bounds) = AgeBounds::of(agents, options) {
        bounds.check(&read, &mut figures, &cluster.violations);
    }
    if let Some(bound) = TimelyBound::of(agents, options)
        && let Some(producer) = &cluster.producer
    {
        bound.check(&read, &producer.late, &mut figures, &cluster.violations);
    }
    match &cluster.prometheus {
        Some(prometheus) => {
            figures.add_resets(&prometheus.check(&cluster.violations, options.engine.confirms())?)
        }
        None if options.prometheus.is_some() => figures.add_no_prometheus(MAX_SCRAPED),
        None => {}
    }
    cluster.check_senders();
    Ok(RunResult {
        agents,
        figures,
        violations: cluster.violations.all(),
    })
}

/// The brokers, the network of each replica, and the stores behind: that of producers, and that of each replica.
struct Network {
    brokers: Vec<Broker>,
    proxies: Vec<Proxy>,
    of_producers: Store,
    of_replicas: Vec<Store>,
}

impl Network {
    fn start(agents: usize, logs: &Path, options: &Options) -> Result<Self, BenchError> {
        let network = if options.namespaces {
            Some(Arc::new(LossyNetwork::prepare()?))
        } else {
            None
        };
        let listeners = (0..REPLICAS).map(|_| TcpListener::bind("127.0.0.1:0"));
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        let ports = listeners.iter().map(|listener| Ok(listener.local_addr()?.port()));
        let ports = ports.collect::<Result<Vec<u16>, BenchError>>()?;
        let (brokers, upstreams, of_producers, of_replicas) = match &options.engine {
            EngineChoice::Nats(server) => {
                let brokers = Broker::nats(server, agents, options, logs)?;
                let servers: Vec<_> = brokers.iter().map(|broker| broker.port).collect();
                // A replica has one server, which may be another than that of its peer.
                let upstreams = servers.iter().copied().cycle().take(REPLICAS).collect();
                let of_replicas = ports.iter().map(|port| Store::nats(&[*port], servers.len()));
                let of_replicas = of_replicas.collect();
                (
                    brokers,
                    upstreams,
                    Store::nats(&servers, servers.len()),
                    of_replicas,
                )
            }
            EngineChoice::Kafka(jars) => {
                let (broker, upstreams) = Broker::kafka(jars, &ports, agents, options, logs)?;
                let of_producers = Store::kafka(broker.port);
                let of_replicas = ports.iter().map(|port| Store::kafka(*port)).collect();
                (vec![broker], upstreams, of_producers, of_replicas)
            }
            EngineChoice::Direct => {
                let own = (0..REPLICAS)
                    .map(|_| free_port())
                    .collect::<Result<Vec<_>, _>>()?;
                let of_replicas = (0..REPLICAS).map(|number| between_replicas(number, &own, &ports));
                let of_replicas = of_replicas.collect();
                (Vec::new(), own.clone(), addresses(&own), of_replicas)
            }
        };
        let proxies = listeners.into_iter().zip(upstreams);
        let proxies = proxies.map(|(listener, upstream)| Proxy::start(listener, upstream, network.clone()));
        let mut network = Self {
            proxies: proxies.collect::<Result<_, _>>()?,
            brokers,
            of_producers,
            of_replicas,
        };
        network.brokers.iter_mut().try_for_each(Broker::start)?;
        network.brokers.iter_mut().try_for_each(Broker::wait)?;
        Ok(network)
    }
}

/// The addresses that a replica of `direct` has: its own one, and those of the proxies of its peers.
fn between_replicas(number: usize, own: &[u16], proxies: &[u16]) -> Store {
    let mut ports = proxies.to_vec();
    ports[number] = own[number];
    addresses(&ports)
}

fn addresses(ports: &[u16]) -> Store {
    Store::Direct(ports.iter().map(|port| format!("127.0.0.1:{port}")).collect())
}

impl Cluster {
    fn start(agents: usize, binary: &Path, logs: &Path, options: &Options) -> Result<Self, BenchError> {
        let violations = Violations::default();
        let network = Network::start(agents, logs, options)?;
        let replicas = network.of_replicas.iter().enumerate().map(|(number, store)| {
            let mut replica = Replica::new(number, binary, store, logs)?;
            replica.start()?;
            Ok(replica)
        });
        let replicas = replicas.collect::<Result<Vec<_>, BenchError>>()?;
        let mut cluster = Self {
            replicas,
            fleet: Fleet::start(agents, &network.of_producers, options, &violations)?,
            proxies: network.proxies,
            brokers: network.brokers,
            producer: None,
            prometheus: None,
            violations,
            page_timeout: PAGE + PAGE_OF_AN_AGENT * u32::try_from(agents * options.gpus)?,
            next_look: Instant::now(),
        };
        cluster.wait_until_ready()?;
        let model = cluster.fleet.model.clone();
        // A calm run measures what a producer costs without them.
        let has_own_metrics = !options.faults.is_empty();
        let store = &network.of_producers;
        cluster.producer = Some(Producer::start(binary, store, logs, model, has_own_metrics)?);
        if let Some(server) = &options.prometheus
            && agents * options.gpus <= MAX_SCRAPED
        {
            cluster.prometheus = Some(Prometheus::start(server, cluster.pages(), logs)?);
        }
        Ok(cluster)
    }

    /// Looks at all processes.
    fn step(&mut self) -> Result<(), BenchError> {
        std::thread::sleep(STEP);
        for replica in &mut self.replicas {
            replica.look();
        }
        let servers = self.brokers.len();
        for (server, broker) in self.brokers.iter_mut().enumerate() {
            broker.note_end_by_its_disk()?;
            if broker.look()? {
                let own = self.replicas.iter_mut().skip(server).step_by(servers);
                own.for_each(Replica::note_server);
            }
        }
        let is_due = self.next_look <= Instant::now();
        if is_due {
            self.next_look = Instant::now() + LOOK;
            self.producer.iter_mut().for_each(Producer::check_pages);
        }
        let brokers = self.brokers.iter_mut().map(|broker| &mut broker.member);
        let producers = self.producer.iter_mut().map(|producer| &mut producer.member);
        let servers = self
            .prometheus
            .iter_mut()
            .map(|prometheus| &mut prometheus.member);
        let replicas = self.replicas.iter_mut().map(|replica| &mut replica.member);
        for member in brokers.chain(producers).chain(servers).chain(replicas) {
            member.check(&self.violations)?;
            if is_due {
                member.look();
            }
        }
        Ok(())
    }

    /// Whether the store is that of a broker. With `direct`, it is that of the replicas.
    fn has_broker(&self) -> bool {
        !self.brokers.is_empty()
    }

    /// The broker, if there is one, and it is ready. A fault of its disk needs that it is alone.
    fn only_broker(&mut self) -> Option<&mut Broker> {
        match &mut self.brokers[..] {
            [broker] if broker.is_ready() => Some(broker),
            _ => None,
        }
    }

    /// Cuts the network of a replica, or restores it. Without a broker, all replicas lose each other.
    fn cut(&self, number: usize, is_cut: bool) -> Result<(), BenchError> {
        let proxies = if self.has_broker() {
            &self.proxies[number..=number]
        } else {
            &self.proxies
        };
        proxies.iter().try_for_each(|proxy| proxy.cut(is_cut))
    }

    fn is_cut(&self, number: usize) -> bool {
        self.proxies[number].is_cut()
    }

    /// Whether a replica may be killed or suspended. Without a broker, only the replicas have the totals of ended runs: one
    /// of them must have everything at any time.
    fn may_harm(&self, number: usize) -> bool {
        let is_alive = self.replicas[number].member.is_alive();
        is_alive && (self.has_broker() || self.is_whole())
    }

    /// Whether all processes run, reach each other and have been ready.
    fn is_whole(&self) -> bool {
        let is_ready = self.brokers.iter().all(Broker::is_ready);
        let has_network = !self.proxies.iter().any(Proxy::is_cut);
        is_ready && has_network && self.replicas.iter().all(Replica::is_ready)
    }

    fn pages(&self) -> Vec<u16> {
        self.replicas.iter().map(|replica| replica.page).collect()
    }

    /// The number of samples of a page.
    fn samples(&self) -> usize {
        let pages = self.pages().into_iter();
        let samples = pages.map(|port| page(port, self.page_timeout).map_or(0, |page| page.len()));
        samples.max().unwrap_or_default()
    }
}
