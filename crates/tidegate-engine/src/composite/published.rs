// SPDX-License-Identifier: Apache-2.0

//! Answers that others compute: those of a composite whose values are in other processes.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use super::{Answer, Composite};
use crate::chunks::lock;
use crate::{Attributes, Reading, Series, UnixNanos, Value, clock};

/// The newest answers; `None`: the composite computes its own.
#[derive(Debug, Default)]
pub(super) struct Published(Mutex<Option<Arc<[PublishedAnswer]>>>);

/// An answer, and the series that it is shown as. A page knows a series by its address, so all answers of a group have one.
#[derive(Debug)]
pub(super) struct PublishedAnswer {
    answer: Answer,
    series: Arc<Series>,
}

impl Published {
    pub(super) fn get(&self) -> Option<Arc<[PublishedAnswer]>> {
        lock(&self.0).clone()
    }

    pub(super) fn answers(&self) -> Option<Vec<Answer>> {
        let published = self.get()?;
        Some(published.iter().map(|known| known.answer.clone()).collect())
    }
}

impl Composite {
    /// Sets the answers that readers see from now on, instead of those of data that the composite observes.
    pub fn publish(&self, answers: Vec<Answer>) {
        let mut published = lock(&self.published.0);
        let before = published.as_deref();
        if before.is_some_and(|before| before.iter().map(|known| &known.answer).eq(&answers)) {
            return;
        }
        let series: HashMap<&Attributes, &Arc<Series>> = before
            .into_iter()
            .flatten()
            .map(|known| (&known.answer.attributes, &known.series))
            .collect();
        let answers = answers.into_iter().map(|answer| {
            let known = series.get(&answer.attributes).map(|known| Arc::clone(known));
            let series = known.unwrap_or_else(|| self.series(answer.attributes.clone()));
            PublishedAnswer { answer, series }
        });
        let answers = answers.collect();
        *published = Some(answers);
        self.version.fetch_add(1, Relaxed);
    }
}

/// Shows published answers as gauges.
pub(super) fn show(published: &[PublishedAnswer], now: UnixNanos, each: &mut dyn FnMut(Reading<'_>)) {
    if published.iter().any(|known| known.answer.error.is_some()) {
        return;
    }
    for PublishedAnswer { answer, series } in published {
        if let Some(value) = answer.value {
            each(Reading {
                series,
                start: 0,
                time: clock::wall(now),
                seen: now,
                value: &Value::Double(value),
                exemplars: &[],
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{AttributeFilter, Declaration, Freshness, Function, Grouping, OnStale, Pattern};

    #[test]
    fn published_answers_replace_those_of_observed_data() {
        let composite = Composite::new(Declaration {
            name: "recent".into(),
            description: "".into(),
            metric: Pattern::Exact("hits".into()),
            attributes: AttributeFilter::default(),
            expression: None,
            function: Function::Sum,
            across: None,
            window: Duration::from_secs(10),
            quantiles: Arc::from([]),
            on_stale: OnStale::Error,
            grouping: Grouping::by::<&str>([]),
            max_groups: 10,
            lease: None,
        });
        let now = clock::now();
        let own = composite.answers(now);
        assert_eq!(own[0].state, Freshness::Absent);
        let answer = Answer {
            value: Some(7.0),
            state: Freshness::Fresh,
            ..own[0].clone()
        };
        let before = composite.version();
        composite.publish(vec![answer.clone()]);
        composite.publish(vec![answer.clone()]);
        assert_eq!(composite.version(), before + 1, "the second has nothing new");
        assert_eq!(composite.answers(now), std::slice::from_ref(&answer));
        let show = || {
            let mut shown = Vec::new();
            composite.show(now, &mut |reading| {
                shown.push((reading.series.clone(), reading.value.clone()));
            });
            shown
        };
        let [(series, value)] = &show()[..] else {
            panic!("it has one group")
        };
        assert_eq!((&*series.metric.name, value), ("recent", &Value::Double(7.0)));
        let answer = Answer {
            value: Some(8.0),
            ..answer
        };
        composite.publish(vec![answer]);
        let [(later, value)] = &show()[..] else {
            panic!("it has one group")
        };
        assert!(Arc::ptr_eq(series, later) && *value == Value::Double(8.0));
    }
}
