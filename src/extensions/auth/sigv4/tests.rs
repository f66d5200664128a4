// SPDX-License-Identifier: Apache-2.0

//! Against the signatures that Amazon publishes for implementers (its `aws-sig-v4-test-suite`).

use std::time::Duration;

use super::*;
use crate::component::testing::{context, settings};

const FILE: &str = "# keys
[other]
aws_access_key_id = no
aws_secret_access_key = no
[suite]
aws_access_key_id = AKIDEXAMPLE
aws_secret_access_key=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY
";

fn signer(directory: &tempfile::TempDir, text: &str) -> Signer {
    let file = directory.path().join("credentials");
    std::fs::write(&file, text).unwrap();
    let config = SigV4Config {
        region: "us-east-1".to_owned(),
        service: "service".to_owned(),
        credentials_file: Some(file),
        profile: "suite".to_owned(),
    };
    Signer {
        keys: Keys::of(&config),
        region: config.region,
        service: config.service,
    }
}

/// 2015-08-30 12:36:00 UTC.
fn then() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160)
}

fn signature(method: &str, uri: &str, body: &[u8], content_type: Option<&str>) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut headers = HeaderMap::new();
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::try_from(content_type).unwrap());
    }
    let uri = uri.parse().unwrap();
    signer(&directory, FILE)
        .sign_at(then(), method, &uri, &mut headers, body)
        .unwrap();
    assert_eq!(headers["x-amz-date"], "20150830T123600Z");
    assert!(headers[AUTHORIZATION].is_sensitive());
    let authorization = headers[AUTHORIZATION].to_str().unwrap();
    let scope = "Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request";
    assert!(authorization.contains(scope), "{authorization}");
    authorization.rsplit('=').next().unwrap().to_owned()
}

#[test]
fn signatures_are_those_of_the_published_suite() {
    let cases = [
        (
            ("GET", "https://example.amazonaws.com/"),
            (&b""[..], None),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        (
            ("POST", "https://example.amazonaws.com/"),
            (b"", None),
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ),
        (
            (
                "GET",
                "https://example.amazonaws.com/?Param2=value2&Param1=value1",
            ),
            (b"", None),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            ("POST", "https://example.amazonaws.com/"),
            (b"Param1=value1", Some("application/x-www-form-urlencoded")),
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ];
    for ((method, uri), (body, content_type), expected) in cases {
        assert_eq!(
            signature(method, uri, body, content_type),
            expected,
            "{method} {uri}"
        );
    }
}

#[test]
fn a_session_token_travels_and_is_signed() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("{FILE}aws_session_token = token\n");
    let mut headers = HeaderMap::new();
    let uri = "https://example.amazonaws.com:8443/".parse().unwrap();
    let signer = signer(&directory, &text);
    signer.sign("POST", &uri, &mut headers, b"").unwrap();
    assert_eq!(headers["x-amz-security-token"], "token");
    assert_eq!(headers[HOST], "example.amazonaws.com:8443");
    let authorization = headers[AUTHORIZATION].to_str().unwrap();
    assert!(authorization.contains("SignedHeaders=host;x-amz-date;x-amz-security-token,"));
}

#[tokio::test]
async fn missing_keys_are_reported_at_the_start() {
    let yaml = "{region: eu-central-1, credentials_file: /nowhere/credentials}";
    let built = (FACTORY.build)(&settings::<SigV4Config>(yaml), context("extensions", "sigv4auth")).unwrap();
    let error = built.start().await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/credentials"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let error = signer(&directory, "[other]\n").keys.current().unwrap_err();
    assert!(error.contains("no profile `suite`"), "{error}");
}

#[test]
fn the_environment_has_keys_too() {
    let some = |name: &str| Some(name.to_lowercase());
    let keys = Keys::from_environment(some).unwrap();
    assert_eq!(
        (&*keys.id, keys.token.as_deref()),
        ("aws_access_key_id", Some("aws_session_token"))
    );
    assert!(Keys::from_environment(|_| None).is_none());
}
