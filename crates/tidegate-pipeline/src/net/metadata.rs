// SPDX-License-Identifier: Apache-2.0

//! `include_metadata`: the headers of a request that stay with its data.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, Request};

use super::peers::PeerAddress;
use crate::batch::{Batch, ClientMetadata, Payload};
use tidegate_config::{Decode, Node, Problems, TypeHelp, YamlType};

/// `true`, `false`, or a list of names.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum IncludeMetadata {
    /// No headers.
    #[default]
    None,
    /// All headers except those of the single request, its connection and its body.
    All,
    /// These headers.
    Only(Vec<HeaderName>),
}

/// Headers that don't identify the sender or differ in every request. With them, no two batches could be joined.
const OF_THE_REQUEST: [&str; 14] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-timeout",
    "te",
    "traceparent",
    "tracestate",
    "transfer-encoding",
];

/// The facts about a request that stay with its data.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    client: Option<Arc<ClientMetadata>>,
    peer: Option<IpAddr>,
}

impl Origin {
    /// A batch of the request that arrives now.
    pub fn batch(self, payload: impl Into<Payload>) -> Batch {
        Batch {
            client: self.client,
            peer: self.peer,
            ..Batch::new(payload)
        }
    }
}

impl IncludeMetadata {
    /// The origin of a request: the headers to keep, and the address that [`super::http::serve`] adds.
    pub fn origin<B>(&self, request: &Request<B>) -> Origin {
        let peer = request.extensions().get::<PeerAddress>();
        Origin {
            client: self.of(request.headers()),
            peer: peer.map(|peer| peer.0),
        }
    }

    /// The headers to keep; `None` if there are none.
    pub fn of(&self, headers: &HeaderMap) -> Option<Arc<ClientMetadata>> {
        let is_kept = |name: &HeaderName| match self {
            Self::None => false,
            Self::All => !OF_THE_REQUEST.contains(&name.as_str()),
            Self::Only(names) => names.contains(name),
        };
        let kept: HeaderMap = headers
            .iter()
            .filter(|(name, _)| is_kept(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        (!kept.is_empty()).then(|| Arc::new(ClientMetadata::new(kept)))
    }
}

impl Decode for IncludeMetadata {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        if node.scalar().is_some() {
            return bool::decode(node, cx).map(|all| if all { Self::All } else { Self::None });
        }
        let names = Vec::<String>::decode(node, cx)?;
        let mut kept = Vec::new();
        for (name, at) in names.iter().zip(node.as_list().unwrap_or_default()) {
            match HeaderName::try_from(name.as_str()) {
                Ok(name) => kept.push(name),
                Err(_) => cx.at(at).error(format!("{name:?} is not a header name")),
            }
        }
        Some(Self::Only(kept))
    }

    fn type_help() -> TypeHelp {
        let list = Vec::<String>::type_help();
        let types = vec![YamlType::Boolean, list.accepts.clone()];
        list.accepting(YamlType::AnyOf(types))
    }

    fn show(&self) -> String {
        match self {
            Self::None => "false".to_owned(),
            Self::All => "true".to_owned(),
            Self::Only(names) => {
                let names: Vec<_> = names.iter().map(HeaderName::to_string).collect();
                names.show()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::parse_text;

    fn decoded(yaml: &str) -> (Option<IncludeMetadata>, String) {
        let mut problems = Problems::default();
        let node = parse_text("test.yaml", yaml, &mut problems).unwrap();
        let decoded = IncludeMetadata::decode(&node, &mut problems);
        (decoded, problems.to_string())
    }

    #[test]
    fn all_none_or_some_are_kept() {
        let headers: HeaderMap = [("x-tenant", "a"), ("authorization", "b"), ("content-length", "1")]
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        for (yaml, expected) in [
            ("true", &["authorization", "x-tenant"][..]),
            ("false", &[]),
            ("[X-Tenant, x-other]", &["x-tenant"]),
        ] {
            let (include, problems) = decoded(yaml);
            assert_eq!(problems, "");
            let kept = include.unwrap().of(&headers);
            let mut names: Vec<_> = kept
                .iter()
                .flat_map(|kept| kept.headers().keys())
                .map(HeaderName::as_str)
                .collect();
            names.sort_unstable();
            assert_eq!(names, expected, "{yaml}");
            assert!(!format!("{kept:?}").contains("\"b\""));
        }
        assert!(decoded("['no header']").1.contains("is not a header name"));
    }
}
