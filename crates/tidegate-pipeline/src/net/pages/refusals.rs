// SPDX-License-Identifier: Apache-2.0

//! Answers to requests that are refused, and the reasons.

use http::StatusCode;
use http::header::WWW_AUTHENTICATE;
use tonic::Code;

use super::{Answer, FORM_TIME, MAX_FORM, busy, error, grpc_error};
use crate::net::auth::NotAdmitted;
use crate::net::body::BodyError as Broken;
use crate::net::grpc::GRPC_STATUS;
use crate::net::refused::Why;

/// The answer to a gRPC request whose body failed.
pub(super) fn broken_call(why: &Broken) -> tonic::Status {
    match why {
        Broken::TimedOut => {
            tonic::Status::deadline_exceeded(format!("the request did not come within {FORM_TIME:?}"))
        }
        Broken::NoRoom(_) | Broken::TooSlow => tonic::Status::unavailable(why.to_string()),
        Broken::TooLarge { .. } | Broken::Broken(_) => tonic::Status::resource_exhausted(format!(
            "the request is broken, or has more than {MAX_FORM} bytes"
        )),
    }
}

/// The answer to a form whose body failed.
pub(super) fn broken_form(why: &Broken) -> Answer {
    match why {
        Broken::NoRoom(_) | Broken::TooSlow => busy(&why.to_string()),
        Broken::TimedOut => {
            let why = format!("the form did not come within {FORM_TIME:?}");
            error(StatusCode::REQUEST_TIMEOUT, "bad_data", &why)
        }
        Broken::TooLarge { .. } | Broken::Broken(_) => {
            let why = format!("the form is broken, or has more than {MAX_FORM} bytes");
            error(StatusCode::PAYLOAD_TOO_LARGE, "bad_data", &why)
        }
    }
}

/// Adds the reason of a refusal to an answer, from its status if necessary.
pub(super) fn with_reason(answer: Answer) -> Answer {
    let is_said = Why::of(&answer).is_some();
    match by_status(&answer).filter(|_| !is_said) {
        Some(why) => why.mark(answer),
        None => answer,
    }
}

/// The reason of a refusal by its status. A temporary failure is not a refusal.
fn by_status(answer: &Answer) -> Option<Why> {
    let code = answer.headers().get(GRPC_STATUS);
    if let Some(code) = code.map(|code| Code::from_bytes(code.as_bytes())) {
        return match code {
            Code::Unimplemented | Code::NotFound => Some(Why::Path),
            Code::InvalidArgument => Some(Why::Parameters),
            _ => None,
        };
    }
    match answer.status() {
        StatusCode::NOT_FOUND => Some(Why::Path),
        StatusCode::BAD_REQUEST => Some(Why::Parameters),
        StatusCode::UNPROCESSABLE_ENTITY => Some(Why::Query),
        _ => None,
    }
}

/// The answer to a client without access.
pub(super) fn refusal(refused: NotAdmitted, is_call: bool) -> Answer {
    let is_for_now = refused.retry_after().is_some();
    let NotAdmitted { why, challenge } = refused;
    match (is_call, is_for_now) {
        (true, true) => grpc_error(tonic::Status::unavailable(why.to_string())),
        (true, false) => grpc_error(tonic::Status::unauthenticated(why.to_string())),
        (false, true) => busy(&why.to_string()),
        (false, false) => {
            let mut answer = error(StatusCode::UNAUTHORIZED, "unauthenticated", &why.to_string());
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            answer
        }
    }
}
