// SPDX-License-Identifier: Apache-2.0

//! Answers that others compute: those of a composite whose values are in other processes.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use super::{Answer, Composite};
use crate::chunks::lock;
use crate::{Reading, UnixNanos, Value, clock};

/// The newest answers; `None`: the composite computes its own.
#[derive(Debug, Default)]
pub(super) struct Published(Mutex<Option<Arc<[Answer]>>>);

impl Published {
    pub(super) fn get(&self) -> Option<Arc<[Answer]>> {
        lock(&self.0).clone()
    }
}

impl Composite {
    /// Sets the answers that readers see from now on, instead of those of data that the composite observes.
    pub fn publish(&self, answers: Vec<Answer>) {
        let mut published = lock(&self.published.0);
        if published.as_deref() != Some(&*answers) {
            *published = Some(answers.into());
            self.version.fetch_add(1, Relaxed);
        }
    }

    /// Shows published answers as gauges.
    pub(super) fn show_published(
        &self,
        answers: &[Answer],
        now: UnixNanos,
        each: &mut dyn FnMut(Reading<'_>),
    ) {
        if answers.iter().any(|answer| answer.error.is_some()) {
            return;
        }
        for answer in answers {
            if let Some(value) = answer.value {
                each(Reading {
                    series: &self.series(answer.attributes.clone()),
                    start: 0,
                    time: clock::wall(now),
                    seen: now,
                    value: &Value::Double(value),
                    exemplars: &[],
                });
            }
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
        assert_eq!(composite.answers(now), [answer]);
        let mut shown = Vec::new();
        composite.show(now, &mut |reading| {
            shown.push((reading.series.metric.name.to_string(), reading.value.clone()));
        });
        assert_eq!(shown, [("recent".to_owned(), Value::Double(7.0))]);
    }
}
