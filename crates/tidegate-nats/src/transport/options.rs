// SPDX-License-Identifier: Apache-2.0

//! Options that the exporter and the receiver share.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::stream::{Config, StorageType};
use tidegate_config::{ByteSize, Node, Problems, Secret};

use crate::config::is_stream_name;
use crate::connection::NatsConnection;
use crate::{NatsError, NatsTlsConfig};

/// Most time for a connection to one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Subjects, by `Signal as usize`.
pub const SUBJECTS: [&str; 3] = ["otlp.metrics", "otlp.traces", "otlp.logs"];

tidegate_config::options! {
    /// `auth`: at most one way.
    pub struct NatsAuthConfig {
        /// File with a user JWT and its seed (`.creds`). It is read for each connection.
        pub credentials_file: Option<PathBuf> = None,
        /// Name of the user.
        pub username: Option<String> = None,
        /// Password of the user.
        pub password: Option<Secret> = None,
        /// Token of the login, instead of a user and a password.
        pub token: Option<Secret> = None,
        /// Seed of an NKey.
        pub nkey: Option<Secret> = None,
    }
}

impl NatsAuthConfig {
    /// A connection with this user.
    pub fn connection(&self, servers: &[String], tls: Option<&NatsTlsConfig>) -> NatsConnection {
        NatsConnection {
            servers: servers.to_vec(),
            credentials_file: self.credentials_file.clone(),
            username: self.username.clone(),
            password: self.password.clone(),
            token: self.token.clone(),
            nkey: self.nkey.clone(),
            tls: tls.cloned(),
            connect_timeout: CONNECT_TIMEOUT,
        }
    }
}

tidegate_config::choices! {
    /// Where a stream has its messages.
    pub enum StreamStorage {
        /// On disk.
        File = "file",
        /// In memory.
        Memory = "memory",
    }
}

tidegate_config::options! {
    /// `stream`: the exporter creates it if it does not exist. A stream that exists stays as it is.
    pub struct StreamOptions {
        /// Name of the stream.
        pub name: String = "otlp".to_owned(),
        /// Subjects of the stream. Unset: the subjects of the exporter.
        pub subjects: Vec<String> = Vec::new(),
        /// Number of servers that keep the stream, 1 to 5.
        pub replicas: usize = 1,
        /// Where the stream has its messages.
        pub storage: StreamStorage = StreamStorage::File,
        /// Age at which messages are removed. 0: never.
        pub max_age: Duration = Duration::ZERO,
        /// Most bytes of the stream. A full stream removes its oldest messages. Unset: no limit.
        pub max_bytes: Option<ByteSize> = None,
        /// How long the stream remembers the ids of messages, to refuse duplicates.
        pub duplicate_window: Duration = Duration::from_mins(2),
    }
    check = StreamOptions::check
}

impl StreamOptions {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if let Err(error) = check_name("name", &self.name) {
            cx.at(at.child("name")).error(error);
        }
        for subject in &self.subjects {
            if let Err(error) = check_subject(subject, true) {
                cx.at(at.child("subjects")).error(error);
            }
        }
        if !(1..=5).contains(&self.replicas) {
            cx.at(at.child("replicas"))
                .error(NatsError::Replicas(self.replicas).to_string());
        }
        if !self.max_age.is_zero() && self.max_age < self.duplicate_window {
            cx.at(at.child("duplicate_window"))
                .error("must be at most `max_age`");
        }
    }

    /// The settings of a new stream.
    pub(super) fn settings(&self, subjects: &[String]) -> Config {
        let own = &self.subjects;
        Config {
            name: self.name.clone(),
            subjects: if own.is_empty() { subjects } else { own.as_slice() }.to_vec(),
            description: Some("OpenTelemetry data".to_owned()),
            num_replicas: self.replicas,
            storage: match self.storage {
                StreamStorage::File => StorageType::File,
                StreamStorage::Memory => StorageType::Memory,
            },
            max_age: self.max_age,
            max_bytes: self
                .max_bytes
                .map_or(-1, |limit| i64::try_from(limit.bytes()).unwrap_or(i64::MAX)),
            duplicate_window: self.duplicate_window,
            ..Config::default()
        }
    }
}

/// Checks the name of a stream or of a consumer, which the option `option` sets.
///
/// # Errors
/// The name has characters that NATS refuses.
pub fn check_name(option: &str, name: &str) -> Result<(), String> {
    if is_stream_name(name) {
        return Ok(());
    }
    Err(format!(
        "`{option}`: `{name}` is empty, or has a space or one of `. * > / \\`"
    ))
}

/// Checks a subject.
///
/// # Errors
/// A part is empty, or has characters that NATS refuses there. Only with `has_wildcards` a part may be `*`, and the last one
/// `>`.
pub fn check_subject(subject: &str, has_wildcards: bool) -> Result<(), String> {
    let is_refused = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '*' | '>');
    let mut parts = subject.split('.').peekable();
    while let Some(part) = parts.next() {
        let is_wildcard = part == "*" || (part == ">" && parts.peek().is_none());
        if part.is_empty() || (part.contains(is_refused) && !(is_wildcard && has_wildcards)) {
            let example = if has_wildcards {
                "`otlp.logs` or `otlp.>`"
            } else {
                "`otlp.logs`"
            };
            return Err(format!("`{subject}` is not a subject such as {example}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_checked_as_the_server_does() {
        for subject in ["otlp.logs", "a", "a.b-c.d_e"] {
            check_subject(subject, false).unwrap();
        }
        for subject in ["", ".a", "a.", "a..b", "a b", "a.*", "a.>", "a.b*"] {
            assert!(check_subject(subject, false).is_err(), "{subject}");
        }
        for subject in ["a.*.b", "a.>", ">", "*"] {
            check_subject(subject, true).unwrap();
        }
        for subject in ["a.>.b", "a*", ">a"] {
            assert!(check_subject(subject, true).is_err(), "{subject}");
        }
    }

    #[test]
    fn a_new_stream_has_the_subjects_of_its_exporter() {
        let subjects = ["a".to_owned(), "b".to_owned()];
        let settings = StreamOptions::default().settings(&subjects);
        assert_eq!(settings.subjects, subjects);
        assert_eq!((settings.max_bytes, settings.num_replicas), (-1, 1));
        let own = StreamOptions {
            subjects: vec!["otlp.>".to_owned()],
            ..StreamOptions::default()
        };
        assert_eq!(own.settings(&subjects).subjects, ["otlp.>"]);
    }
}
