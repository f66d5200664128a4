// SPDX-License-Identifier: Apache-2.0

//! The settings of a durable consumer, and those of one that exists.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};

/// The number of deliveries of a message has no limit.
const UNLIMITED: i64 = -1;

/// Where a new consumer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliverFrom {
    /// At the first message of the stream.
    All,
    /// At the last message of the stream.
    Last,
    /// At the first message after the consumer.
    New,
}

/// A durable consumer.
#[derive(Clone, Debug)]
pub struct DurableOptions {
    /// The stream. `None`: that of the first subject.
    pub stream: Option<String>,
    /// The name of the consumer.
    pub name: String,
    /// The subjects of its messages.
    pub subjects: Vec<String>,
    /// A message without an answer for this long is delivered again.
    pub ack_wait: Duration,
    /// The most messages without an answer, of all members together.
    pub max_ack_pending: i64,
    /// Where a new consumer begins.
    pub deliver: DeliverFrom,
    /// The names of the headers that messages keep.
    pub headers: Vec<String>,
}

impl DurableOptions {
    /// The settings of a new consumer.
    pub(super) fn settings(&self) -> pull::Config {
        let (filter_subject, filter_subjects) = match &*self.subjects {
            [one] => (one.clone(), Vec::new()),
            all => (String::new(), all.to_vec()),
        };
        pull::Config {
            durable_name: Some(self.name.clone()),
            filter_subject,
            filter_subjects,
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_ack_pending: self.max_ack_pending,
            max_deliver: UNLIMITED,
            deliver_policy: match self.deliver {
                DeliverFrom::All => DeliverPolicy::All,
                DeliverFrom::Last => DeliverPolicy::Last,
                DeliverFrom::New => DeliverPolicy::New,
            },
            ..pull::Config::default()
        }
    }

    /// Checks a consumer that exists.
    ///
    /// # Errors
    /// It gives other messages, or expects no answers to each.
    pub(super) fn check(&self, found: &pull::Config) -> Result<(), String> {
        let name = &self.name;
        if found.ack_policy != AckPolicy::Explicit {
            return Err(format!(
                "`ack_policy` of the consumer `{name}` is {:?}, but must be Explicit: delete the consumer, or set another `durable`",
                found.ack_policy
            ));
        }
        if found.headers_only {
            return Err(format!(
                "the consumer `{name}` has `headers_only`, so its messages are empty: edit or delete the consumer, or set another \
                 `durable`"
            ));
        }
        let settings = self.settings();
        let (own, theirs) = (subjects(&settings), subjects(found));
        if own != theirs {
            return Err(format!(
                "the consumer `{name}` has the subjects {theirs:?}, but must have {own:?}: edit or delete the consumer, or set \
                 another `durable`"
            ));
        }
        Ok(())
    }

    /// The settings in which a consumer that exists differs. They stay as they are.
    pub(super) fn differences(&self, found: &pull::Config) -> Vec<String> {
        let own = self.settings();
        let all = [
            difference("ack_wait", &own.ack_wait, &found.ack_wait),
            difference("max_ack_pending", &own.max_ack_pending, &found.max_ack_pending),
            difference("deliver_policy", &own.deliver_policy, &found.deliver_policy),
            difference("max_deliver", &own.max_deliver, &found.max_deliver),
            difference("max_batch", &own.max_batch, &found.max_batch),
        ];
        all.into_iter().flatten().collect()
    }
}

fn difference<T: Debug + PartialEq>(name: &str, own: &T, found: &T) -> Option<String> {
    (own != found).then(|| format!("{name} is {found:?} and not {own:?}"))
}

fn subjects(config: &pull::Config) -> BTreeSet<&str> {
    let all = config.filter_subjects.iter().chain([&config.filter_subject]);
    all.map(String::as_str)
        .filter(|subject| !subject.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> DurableOptions {
        DurableOptions {
            stream: None,
            name: "tidegate-logs".to_owned(),
            subjects: vec!["a".to_owned()],
            ack_wait: Duration::from_secs(30),
            max_ack_pending: 1000,
            deliver: DeliverFrom::All,
            headers: Vec::new(),
        }
    }

    #[test]
    fn a_consumer_of_other_messages_is_refused_with_the_cure() {
        let own = options();
        own.check(&own.settings()).unwrap();
        let other = DurableOptions {
            subjects: vec!["b".to_owned(), "c".to_owned()],
            ..options()
        };
        let error = own.check(&other.settings()).unwrap_err();
        assert!(error.contains("has the subjects {\"b\", \"c\"}"), "{error}");
        let silent = pull::Config {
            ack_policy: AckPolicy::None,
            ..own.settings()
        };
        assert!(own.check(&silent).unwrap_err().contains("must be Explicit"));
    }

    #[test]
    fn other_settings_of_a_consumer_are_only_named() {
        let own = options();
        assert!(own.differences(&own.settings()).is_empty());
        let found = pull::Config {
            ack_wait: Duration::from_secs(5),
            ..own.settings()
        };
        own.check(&found).unwrap();
        assert_eq!(own.differences(&found), ["ack_wait is 5s and not 30s"]);
    }
}
