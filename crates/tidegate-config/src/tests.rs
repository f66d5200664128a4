// SPDX-License-Identifier: Apache-2.0

//! Whole files: what is accepted, and the exact text for what is not.

mod formatting;
mod golden;
mod headers;
mod hostile;
mod merging;
mod printing;
mod substitution;
mod typed;

use std::time::Duration;

use super::{ByteSize, Class, Decode, Headers, Loaded, Loader, Node, Problems, Registry, Secret};

/// The component types that the tests pretend to have.
struct Known;

impl Registry for Known {
    fn kinds(&self, class: Class) -> Vec<&str> {
        match class {
            Class::Receiver => vec!["nixl", "nixl_mp", "otlp", "uds"],
            Class::Processor => vec!["aggregate", "batch", "composite", "memory_limiter"],
            Class::Exporter => vec![
                "debug",
                "file",
                "otlp",
                "otlp_grpc",
                "otlp_http",
                "otlphttp",
                "prometheus",
            ],
            Class::Connector => vec!["forward"],
            Class::Extension => vec!["admin", "health_check"],
        }
    }
}

crate::choices! {
    /// Compression of bodies.
    enum Compression {
        /// No compression.
        None = "none" | "",
        /// RFC 1952.
        #[deprecated_alias = "gnu_zip"]
        Gzip = "gzip",
    }
}

crate::options! {
    /// Two numbers of which one bounds the other.
    struct Limits {
        /// The limit at which the receiver begins to refuse.
        soft: u64 = 1,
        /// The limit at which the receiver refuses everything.
        hard: u64 = 10,
    }
    check = Limits::check
}

impl Limits {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.soft > self.hard {
            cx.at(at.child("soft"))
                .error("`soft` must not be greater than `hard`");
        }
    }
}

crate::options! {
    /// A receiver with an option of every kind.
    struct NixlOptions {
        /// Directories (globs)
        /// in which rings appear.
        #[alias = "dirs"]
        #[alias = "paths"]
        directories: Vec<String> = required,
        /// Interval between two reads of a ring.
        poll_interval: Duration = Duration::from_millis(10),
        /// The receiver removes events from the ring.
        consume: bool = true,
        /// Largest number of rings.
        #[deprecated_alias = "ring_limit"]
        max_rings: u16 = 1_000,
        /// Bytes read at once.
        buffer: ByteSize = ByteSize::kib(64),
        /// Compression of the output.
        compression: Compression = Compression::None,
        /// Bounds.
        limits: Limits = Limits::default(),
        /// Absent unless given.
        extra: Option<Limits> = None,
        /// A keyword as a key.
        r#type: Option<String> = None,
    }
}

crate::options! {
    /// Options whose tables have other defaults than their type.
    struct HookOptions {
        /// Own defaults.
        limits: Limits = Limits { soft: 3, hard: 7 },
        /// Own defaults that may be absent.
        maybe: Option<Limits> = Some(Limits { soft: 2, ..Limits::default() }),
        /// Own defaults behind a pointer.
        boxed: Box<Limits> = Box::new(Limits { soft: 6, hard: 60 }),
        /// The defaults of the type.
        plain: Option<Limits> = None,
    }
}

crate::options! {
    /// Options above those with own defaults.
    struct OuterOptions {
        /// A default that differs two levels down.
        hook: HookOptions = HookOptions { limits: Limits { soft: 4, hard: 8 }, ..HookOptions::default() },
        /// A list has no default for its items.
        hooks: Vec<HookOptions> = Vec::new(),
    }
}

crate::options! {
    /// An exporter with secrets.
    struct OtlpOptions {
        /// Address of the peer.
        endpoint: String = required,
        /// Headers of each request.
        headers: Headers = Headers::new(),
        /// A secret with a neutral name.
        pass_code: Secret = Secret::default(),
        /// A secret with a revealing name.
        password: Secret = Secret::default(),
        /// Another one.
        api_token: u16 = 0,
        /// Timeout of an attempt.
        timeout: Duration = Duration::from_secs(30),
    }
}

fn env(name: &str) -> Option<String> {
    let value = match name {
        "API_KEY" => "0123",
        "WORD" => "hunter2",
        "HUNTER" => "hunter2",
        "LOOP" => "${env:LOOP}",
        "MAP" => "{a: hunter2}",
        _ => return None,
    };
    Some(value.to_owned())
}

/// Loads a text and decodes the options of the components that the tests know.
fn load(name: &str, text: &str) -> Loaded {
    let mut loaded = Loader::default().text(name, text).env(env).load(&Known);
    let cx = &mut loaded.problems;
    for component in loaded
        .document
        .iter()
        .flat_map(super::document::Document::components)
    {
        match component.id.kind.as_str() {
            "nixl" => drop(NixlOptions::decode(&component.options, cx)),
            "otlphttp" => drop(OtlpOptions::decode(&component.options, cx)),
            _ => {}
        }
    }
    loaded
}
