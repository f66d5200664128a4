// SPDX-License-Identifier: Apache-2.0

//! The stream of a cluster: it is created if it does not exist, and must have the settings that the state machines need.

use std::fmt::Debug;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ErrorCode, context::GetStreamErrorKind};
use tidegate_cluster::Subject;

use crate::NatsConfig;
use crate::link::LinkError;

/// `tg.` and the escaped name of the cluster: all its subjects begin with this.
pub(crate) fn subject_prefix(cluster: &str) -> String {
    let leader = Subject::Leader.text(cluster);
    let mut tokens = leader.split('.');
    let prefix = [tokens.next(), tokens.next()];
    prefix.map(Option::unwrap_or_default).join(".")
}

/// The name of the stream: that of the options, or `tidegate_` and the escaped name of the cluster.
pub(crate) fn stream_name(config: &NatsConfig, cluster: &str) -> String {
    let default = || subject_prefix(cluster).replacen("tg.", "tidegate_", 1);
    config.stream.clone().unwrap_or_else(default)
}

/// The settings of the stream.
pub(crate) fn stream_config(config: &NatsConfig, cluster: &str) -> Config {
    Config {
        name: stream_name(config, cluster),
        subjects: vec![format!("{}.>", subject_prefix(cluster))],
        description: Some(format!("Totals of the tidegate cluster {cluster}")),
        max_messages_per_subject: 1,
        max_messages: -1,
        // The oldest message may be the only one with the totals of an ended run.
        discard: DiscardPolicy::New,
        max_bytes: config
            .max_bytes
            .map_or(-1, |limit| i64::try_from(limit.bytes()).unwrap_or(i64::MAX)),
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        num_replicas: config.replicas,
        ..Config::default()
    }
}

/// Creates the stream if it does not exist, and checks its settings.
pub(crate) async fn open_stream(context: &Context, wanted: &Config) -> Result<(), LinkError> {
    let stream = match context.get_stream(&wanted.name).await {
        Err(error) if is_missing(&error.kind()) => {
            let created = context.create_stream(wanted.clone()).await;
            let created = created.map_err(|error| LinkError::Create(wanted.name.clone(), error))?;
            tracing::info!(
                stream = wanted.name,
                "created the stream of the cluster. If the cluster ran before, check its `name` and the account"
            );
            created
        }
        found => found.map_err(|error| LinkError::Stream(wanted.name.clone(), error))?,
    };
    check(wanted, &stream.cached_info().config)
}

fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// The first setting that differs.
fn check(wanted: &Config, found: &Config) -> Result<(), LinkError> {
    let bytes_or_any = |of: &Config| {
        if wanted.max_bytes < 0 { -1 } else { of.max_bytes }
    };
    let settings = [
        setting("subjects", wanted, found, |of| of.subjects.clone()),
        setting("max_msgs_per_subject", wanted, found, |of| {
            of.max_messages_per_subject
        }),
        setting("discard", wanted, found, |of| of.discard),
        setting("discard_new_per_subject", wanted, found, |of| {
            of.discard_new_per_subject
        }),
        setting("max_msgs", wanted, found, |of| of.max_messages),
        setting("max_age", wanted, found, |of| of.max_age),
        setting("max_bytes", wanted, found, bytes_or_any),
        setting("retention", wanted, found, |of| of.retention),
        setting("storage", wanted, found, |of| of.storage),
        replicas(wanted, found),
        setting("no_ack", wanted, found, |of| of.no_ack),
        setting("deny_purge", wanted, found, |of| of.deny_purge),
        setting("sealed", wanted, found, |of| of.sealed),
    ];
    settings.into_iter().flatten().next().map_or(Ok(()), Err)
}

/// The error of a setting; `None`: both streams have the same.
fn setting<T: Debug + PartialEq>(
    name: &'static str,
    wanted: &Config,
    found: &Config,
    value: impl Fn(&Config) -> T,
) -> Option<LinkError> {
    let (expected, present) = (value(wanted), value(found));
    (expected != present).then(|| LinkError::Setting {
        stream: wanted.name.clone(),
        setting: name,
        wanted: format!("{expected:?}"),
        found: format!("{present:?}"),
    })
}

/// The error of another number of replicas. An operator may change it while the stream is in use.
fn replicas(wanted: &Config, found: &Config) -> Option<LinkError> {
    (found.num_replicas != wanted.num_replicas).then(|| LinkError::Replicas {
        stream: wanted.name.clone(),
        wanted: wanted.num_replicas,
        found: found.num_replicas,
    })
}

#[cfg(test)]
mod tests {
    use tidegate_config::ByteSize;

    use super::*;

    #[test]
    fn names_of_clusters_are_escaped() {
        let config = NatsConfig::default();
        assert_eq!(subject_prefix("prod a.b"), "tg.prod%20a%2Eb");
        assert_eq!(stream_name(&config, "prod a.b"), "tidegate_prod%20a%2Eb");
        let config = NatsConfig {
            stream: Some("totals".to_owned()),
            ..config
        };
        assert_eq!(stream_name(&config, "c"), "totals");
    }

    #[test]
    fn the_error_names_the_setting_that_differs() {
        let wanted = stream_config(&NatsConfig::default(), "c");
        assert!(check(&wanted, &wanted).is_ok());
        let found = Config {
            discard: DiscardPolicy::Old,
            ..wanted.clone()
        };
        let error = check(&wanted, &found).unwrap_err().to_string();
        assert!(
            error.contains("`discard` of the stream `tidegate_c` is Old"),
            "{error}"
        );
    }

    #[test]
    fn a_limit_of_bytes_is_free_if_no_option_sets_one() {
        let limited = NatsConfig {
            max_bytes: Some(ByteSize::mib(1024)),
            ..NatsConfig::default()
        };
        let (free, limited) = (
            stream_config(&NatsConfig::default(), "c"),
            stream_config(&limited, "c"),
        );
        assert!(check(&free, &limited).is_ok());
        assert!(check(&limited, &free).is_err());
    }
}
