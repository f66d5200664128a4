// SPDX-License-Identifier: Apache-2.0

//! The end of a run: both replicas show exactly what has been counted.

use std::time::{Duration, Instant};

use super::broker::Broker;
use super::check::compare;
use super::fleet::AgentAct;
use super::producer::PROBE_SERIES;
use super::reader::page;
use super::replica::Replica;
use super::{Cluster, REPLICAS};
use crate::BenchError;

/// In what pages are wrong; an error if a replica does not answer.
type Totals = Result<Vec<String>, String>;

/// The longest time until a replica is ready, all pages are stored, or all totals are shown. It is four times `refresh`, and
/// more than a Kafka broker needs to start and to end open transactions (10 s and 20 s).
const PATIENCE: Duration = Duration::from_mins(2);

/// The totals must stay right for this long. Gauges of ended runs go after 3 s.
const REST: Duration = Duration::from_secs(5);

impl Cluster {
    pub(super) fn wait_until_ready(&mut self) -> Result<(), BenchError> {
        let begun = Instant::now();
        let is_ready = |cluster: &Self| {
            cluster.brokers.iter().all(Broker::is_ready) && cluster.replicas.iter().all(Replica::is_ready)
        };
        while !is_ready(self) {
            self.step()?;
            if begun.elapsed() > PATIENCE {
                return Err("a replica is not ready in time".into());
            }
        }
        Ok(())
    }

    /// Both replicas show exactly what has been counted, also after they have lost their memory.
    pub(super) fn check_end(&mut self) -> Result<(), BenchError> {
        self.wait_until_ready()?;
        if let Some(producer) = &mut self.producer {
            producer.freeze()?;
        }
        let late = self.fleet.all(AgentAct::Freeze, PATIENCE);
        if late > 0 {
            self.violations
                .add(format!("{late} agents could not store their pages in time"));
        }
        self.wait_until_ready()?;
        self.check_totals("at rest");
        self.check_own_metrics()?;
        // The last starts are those with a full store.
        self.replicas
            .iter_mut()
            .for_each(|replica| replica.catch_ups.clear());
        for number in 0..REPLICAS {
            self.replicas[number].kill(&self.violations);
            if !self.has_broker() {
                self.replicas[number].start()?;
                self.wait_until_ready()?;
            }
        }
        if self.has_broker() {
            self.replicas.iter_mut().try_for_each(Replica::start)?;
        }
        self.wait_until_ready()?;
        self.check_totals("after a restart of all replicas");
        Ok(())
    }

    /// The totals stay when all agents have ended, and their gauges go.
    pub(super) fn check_after_goodbyes(&mut self) -> Result<(), BenchError> {
        let late = self.fleet.all(AgentAct::End, PATIENCE);
        if late > 0 {
            self.violations
                .add(format!("{late} agents could not end in time"));
        }
        self.check_totals("after all goodbyes");
        self.check_own_metrics()
    }

    /// The senders of the agents refuse nothing, and keep nothing.
    pub(super) fn check_senders(&self) {
        let sent = self.fleet.model.lock().sent();
        if sent.refused > 0 || sent.waiting > 0 {
            self.violations.add(format!(
                "the senders have refused {} series, and ended with {} pages that wait (logs: agents.log)",
                sent.refused, sent.waiting
            ));
        }
    }

    /// Waits until both pages equal the model, and says in what they differ if they do not or do not stay so.
    fn check_totals(&self, when: &str) {
        let begun = Instant::now();
        let until = |holds: &dyn Fn(&Totals) -> bool| {
            let mut found = self.wrong_totals();
            while !holds(&found) && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(200));
                found = self.wrong_totals();
            }
            found
        };
        let found = until(&|found| found.as_ref().is_ok_and(Vec::is_empty));
        if found.is_ok_and(|wrong| wrong.is_empty()) {
            std::thread::sleep(REST);
        }
        // A page that is not answered now shows no wrong total. It must be answered later.
        let found = until(&Result::is_ok);
        let wrong = found.unwrap_or_else(|error| vec![error]);
        self.violations.add_all(when, &wrong);
    }

    /// In what the pages differ from the model and from each other; an error if a replica does not answer.
    fn wrong_totals(&self) -> Totals {
        let model = self.fleet.model.lock();
        let mut expected = model.totals();
        expected.extend(model.gauges());
        drop(model);
        let pages = self.pages().into_iter();
        match pages
            .map(|port| page(port, self.page_timeout))
            .collect::<Result<Vec<_>, _>>()
        {
            Ok(pages) => {
                let mut wrong = Vec::new();
                for (number, page) in pages.iter().enumerate() {
                    let different = compare(page, &expected).into_iter();
                    wrong.extend(different.map(|different| format!("replica-{number}: {different}")));
                }
                let pairs = pages.windows(2).flat_map(|pair| pair[0].differences(&pair[1]));
                wrong.extend(pairs.map(|different| format!("the replicas show {different}")));
                Ok(wrong)
            }
            Err(error) => Err(format!("a page: {error}")),
        }
    }

    /// The replicas refuse nothing, and know all series and agents.
    fn check_own_metrics(&mut self) -> Result<(), BenchError> {
        let model = self.fleet.model.lock();
        let series = model.series() + PROBE_SERIES;
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
}
