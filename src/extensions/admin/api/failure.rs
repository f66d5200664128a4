// SPDX-License-Identifier: Apache-2.0

//! The failure of a request: its HTTP status and its kind of error, as Prometheus names them.

use http::StatusCode;
use tidegate_promql::QueryError;

use crate::extensions::admin::queues::NotComputed;

/// The kind of error of a query that has no result.
const EXECUTION: &str = "execution";

/// The kind of error of a query that took longer than it may.
const TIMEOUT: &str = "timeout";

/// The kind of error of a query that has no memory for now.
const MEMORY: &str = "memory";

/// The failure of a request, in the form of Prometheus.
pub(super) struct ApiFailure {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    pub(super) why: String,
    /// Whether the request exceeds a limit.
    pub(super) is_too_much: bool,
}

impl From<QueryError> for ApiFailure {
    fn from(error: QueryError) -> Self {
        let (status, kind) = match &error {
            QueryError::Syntax(_) | QueryError::Unsupported(_) => (StatusCode::BAD_REQUEST, "bad_data"),
            QueryError::Execution(_) | QueryError::Samples(_) | QueryError::TooMuch(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, EXECUTION)
            }
            QueryError::Timeout => (StatusCode::SERVICE_UNAVAILABLE, TIMEOUT),
            QueryError::Canceled => (StatusCode::SERVICE_UNAVAILABLE, "canceled"),
            QueryError::Memory => return Self::memory(),
        };
        Self {
            status,
            kind,
            why: error.to_string(),
            is_too_much: matches!(error, QueryError::TooMuch(_)),
        }
    }
}

impl ApiFailure {
    /// The request is wrong.
    pub(super) fn bad(why: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "bad_data",
            why: why.into(),
            is_too_much: false,
        }
    }

    /// The query has no result.
    pub(super) fn execution(why: String) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            kind: EXECUTION,
            why,
            is_too_much: false,
        }
    }

    /// There is too little memory for the query.
    pub(super) fn memory() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: MEMORY,
            why: NotComputed::Memory.to_string(),
            is_too_much: false,
        }
    }

    /// The query has no memory for now.
    pub(super) fn is_memory(&self) -> bool {
        self.kind == MEMORY
    }

    /// The query took longer than it may.
    pub(super) fn is_timeout(&self) -> bool {
        self.kind == TIMEOUT
    }

    /// The failure with the name of a parameter.
    pub(super) fn of(self, parameter: &str) -> Self {
        Self {
            why: format!("invalid parameter {parameter:?}: {}", self.why),
            ..self
        }
    }
}
