// SPDX-License-Identifier: Apache-2.0

//! `retry_on_failure::retry_on_status`: retries for answers that are final by the protocol.

use http::StatusCode;
use tonic::Code;

use super::config::RetryConfig;
use super::outcome::Outcome;
use crate::net::grpc::CODE_NAMES;
use tidegate_config::{Decode, Node, Problems, ScalarKind, TypeHelp, YamlType, wrong_type};

/// An HTTP or gRPC status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryStatus {
    /// 300 to 599.
    Http(u16),
    /// 1 to 16, or its name.
    Grpc(Code),
}

/// The protocol of an exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// gRPC.
    Grpc,
    /// HTTP.
    Http,
    /// A protocol without a status.
    Other,
}

impl RetryConfig {
    /// Reports statuses that the exporter never receives. `at` is the node of the exporter.
    pub fn check_statuses(&self, speaks: Speaks, at: &Node, cx: &mut Problems) {
        let wrong = self.retry_on_status.iter().any(|status| {
            let of = match status {
                RetryStatus::Http(_) => Speaks::Http,
                RetryStatus::Grpc(_) => Speaks::Grpc,
            };
            of != speaks
        });
        if !wrong {
            return;
        }
        let at = at.child("retry_on_failure").child("retry_on_status");
        cx.at(at).error(match speaks {
            Speaks::Grpc => "this exporter speaks gRPC: name codes such as UNAUTHENTICATED",
            Speaks::Http => "this exporter speaks HTTP: list statuses such as 401",
            Speaks::Other => "this exporter's answers have no status",
        });
    }

    /// The outcome of an HTTP answer, made retryable if the list has its status.
    pub fn of_http(&self, status: StatusCode, outcome: Outcome) -> Outcome {
        if self.has_http(status) {
            outcome.tried_again()
        } else {
            outcome
        }
    }

    /// The outcome of a gRPC answer, made retryable if the list has its code.
    pub fn of_grpc(&self, code: Code, outcome: Outcome) -> Outcome {
        if self.retry_on_status.contains(&RetryStatus::Grpc(code)) {
            outcome.tried_again()
        } else {
            outcome
        }
    }

    /// Whether an HTTP status is listed.
    pub fn has_http(&self, status: StatusCode) -> bool {
        self.retry_on_status.contains(&RetryStatus::Http(status.as_u16()))
    }
}

impl Decode for RetryStatus {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(scalar) = node.scalar() else {
            return wrong_type(node, cx);
        };
        let status = match scalar.kind {
            ScalarKind::Int(code @ 1..=16) => Some(Self::Grpc(Code::from_i32(code as i32))),
            ScalarKind::Int(status @ 300..=599) => Some(Self::Http(status as u16)),
            _ => named(&scalar.text),
        };
        if status.is_none() {
            let shown = node.shown();
            cx.at(node).error(format!(
                "{shown} is not a failure: expected an HTTP status (300 to 599) or a gRPC code such as UNAUTHENTICATED"
            ));
        }
        status
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("status", "401 or UNAUTHENTICATED").accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        match self {
            Self::Http(status) => status.to_string(),
            Self::Grpc(code) => CODE_NAMES[*code as usize].to_owned(),
        }
    }
}

fn named(name: &str) -> Option<RetryStatus> {
    let mut codes = (1..).map(Code::from_i32).zip(&CODE_NAMES[1..]);
    let (code, _) = codes.find(|(_, known)| known.eq_ignore_ascii_case(name))?;
    Some(RetryStatus::Grpc(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_name() {
        for code in (1..=16).map(Code::from_i32) {
            let status = RetryStatus::Grpc(code);
            let letters = status.show().replace('_', "");
            assert!(format!("{code:?}").eq_ignore_ascii_case(&letters), "{letters}");
            assert_eq!(named(&status.show()), Some(status));
        }
    }
}
