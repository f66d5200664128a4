// SPDX-License-Identifier: Apache-2.0

//! The errors of components have texts, and are those of the code.

use super::*;

/// Components that report no errors of their own.
const WITHOUT_ERRORS: &[(Class, &str)] = &[
    (Class::Receiver, "nop"),
    (Class::Processor, "attributes"),
    (Class::Processor, "resource"),
    (Class::Exporter, "nop"),
    (Class::Connector, "forward"),
    (Class::Extension, "headers_setter"),
    (Class::Extension, "memory_ballast"),
];

fn is_sentence(text: &str) -> bool {
    text.starts_with(|first: char| first.is_uppercase() || first == '`')
        && text.ends_with('.')
        && text.split_whitespace().count() > 2
}

#[test]
fn every_component_has_errors_with_texts() {
    for about in all() {
        let path = format!("{}::{}", about.class.section(), about.kind);
        let is_listed = WITHOUT_ERRORS.contains(&(about.class, about.kind));
        let errors = about.errors.concat();
        assert_eq!(errors.is_empty(), is_listed, "{path}");
        for error in errors {
            let has_symptom = !error.answer.is_empty() || !error.log.is_empty();
            assert!(has_symptom, "{path}: neither an answer nor a log line: {error:?}");
            assert!(is_sentence(error.case), "{path}: {error:?}");
            assert!(is_sentence(error.remedy), "{path}: {error:?}");
        }
    }
}

#[test]
fn log_lines_of_errors_are_in_the_code() {
    let code = testing::code_without_errors();
    let mut found = 0;
    for error in all().iter().flat_map(|about| about.errors.concat()) {
        let is_there = error.log.is_empty() || code.contains(error.log);
        assert!(is_there, "no code logs this: {:?}", error.log);
        found += usize::from(!error.log.is_empty());
    }
    assert!(found > 80, "{found} lines");
}

/// The answers of HTTP and gRPC by their names in the code.
const ANSWERS: &[(&[&str], &str)] = &[
    (&["StatusCode::BAD_REQUEST"], "400"),
    (&["StatusCode::UNAUTHORIZED"], "401"),
    (&["StatusCode::FORBIDDEN"], "403"),
    (&["StatusCode::NOT_FOUND"], "404"),
    (&["StatusCode::METHOD_NOT_ALLOWED"], "405"),
    (&["StatusCode::PAYLOAD_TOO_LARGE"], "413"),
    (&["StatusCode::UNSUPPORTED_MEDIA_TYPE"], "415"),
    (&["StatusCode::UNPROCESSABLE_ENTITY"], "422"),
    (&["StatusCode::TOO_MANY_REQUESTS"], "429"),
    (&["StatusCode::INTERNAL_SERVER_ERROR"], "500"),
    (&["StatusCode::NOT_IMPLEMENTED"], "501"),
    (&["StatusCode::SERVICE_UNAVAILABLE"], "503"),
    (&["Code::Cancelled", "Status::cancelled"], "CANCELLED"),
    (
        &["Code::FailedPrecondition", "Status::failed_precondition"],
        "FAILED_PRECONDITION",
    ),
    (&["Code::Internal", "Status::internal"], "INTERNAL"),
    (
        &["Code::InvalidArgument", "Status::invalid_argument"],
        "INVALID_ARGUMENT",
    ),
    (&["Code::NotFound", "Status::not_found"], "NOT_FOUND"),
    (
        &["Code::PermissionDenied", "Status::permission_denied"],
        "PERMISSION_DENIED",
    ),
    (
        &["Code::ResourceExhausted", "Status::resource_exhausted"],
        "RESOURCE_EXHAUSTED",
    ),
    (
        &["Code::Unauthenticated", "Status::unauthenticated"],
        "UNAUTHENTICATED",
    ),
    (&["Code::Unavailable", "Status::unavailable"], "UNAVAILABLE"),
    (&["Code::Unimplemented", "Status::unimplemented"], "UNIMPLEMENTED"),
];

#[test]
fn the_errors_have_each_status_that_the_code_answers_with() {
    let mut found = 0;
    for about in all() {
        // The statuses there are those that destinations answer with.
        if about.class == Class::Exporter && about.kind != "prometheus" {
            continue;
        }
        let Some(code) = testing::code_of_component(about.class, about.kind) else {
            continue;
        };
        let answers: Vec<_> = about.errors.concat().iter().map(|error| error.answer).collect();
        for (names, answer) in ANSWERS {
            if names.iter().any(|name| code.contains(name)) {
                found += 1;
                let is_listed = answers.iter().any(|listed| listed.contains(answer));
                assert!(is_listed, "{}::{}: {answer}", about.class.section(), about.kind);
            }
        }
    }
    assert!(found >= 25, "{found} statuses");
}
