// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::component::testing::{context, settings};

fn services(yaml: &str) -> Services {
    let built = (FACTORY.build)(
        &settings::<BearerTokenConfig>(yaml),
        context("extensions", "bearertokenauth"),
    );
    built.unwrap().services()
}

fn with(name: &'static str, value: &str) -> HeaderMap {
    HeaderMap::from_iter([(
        HeaderName::from_static(name),
        HeaderValue::try_from(value).unwrap(),
    )])
}

#[tokio::test]
async fn any_of_the_tokens_lets_in_and_the_first_is_sent() {
    let services = services("{tokens: [one, two]}");
    let server = services.authenticator.unwrap();
    for right in ["Bearer one", "bearer two"] {
        assert_eq!(server.check(&with("authorization", right), None).await, Ok(()));
    }
    for wrong in ["Bearer three", "Bearer ", "Basic one", "one", ""] {
        assert!(
            server.check(&with("authorization", wrong), None).await.is_err(),
            "{wrong}"
        );
    }
    assert!(server.check(&HeaderMap::new(), None).await.is_err());
    let mut headers = HeaderMap::new();
    services.credentials.unwrap().apply(&mut headers, None).unwrap();
    assert_eq!(headers["authorization"], "Bearer one");
    assert!(headers["authorization"].is_sensitive());
}

#[tokio::test]
async fn header_and_scheme_can_be_others() {
    let services = services("{token: k, header: x-api-key, scheme: ''}");
    assert_eq!(
        services
            .authenticator
            .unwrap()
            .check(&with("x-api-key", "k"), None)
            .await,
        Ok(())
    );
    let mut headers = HeaderMap::new();
    services.credentials.unwrap().apply(&mut headers, None).unwrap();
    assert_eq!(headers["x-api-key"], "k");
}

#[tokio::test]
async fn a_file_without_tokens_stops_the_start() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let yaml = format!("{{filename: {}}}", file.path().display());
    let built = (FACTORY.build)(
        &settings::<BearerTokenConfig>(&yaml),
        context("extensions", "bearertokenauth"),
    )
    .unwrap();
    let error = built.start().await.unwrap_err();
    assert!(error.to_string().contains("no token"), "{error}");
    std::fs::write(file.path(), "t1\n\nt2\n").unwrap();
    let built = (FACTORY.build)(
        &settings::<BearerTokenConfig>(&yaml),
        context("extensions", "bearertokenauth"),
    )
    .unwrap();
    built.start().await.unwrap();
    let server = built.services().authenticator.unwrap();
    assert_eq!(
        server.check(&with("authorization", "Bearer t2"), None).await,
        Ok(())
    );
}
