use super::*;
use crate::component::testing::{context, settings};

fn services(yaml: &str) -> Services {
    let built = (FACTORY.build)(&settings::<Config>(yaml), context("extensions", "basicauth"));
    built.unwrap().services()
}

fn basic(user: &str) -> HeaderMap {
    let encoded = base64::engine::general_purpose::STANDARD.encode(user);
    HeaderMap::from_iter([(
        AUTHORIZATION,
        HeaderValue::try_from(format!("Basic {encoded}")).unwrap(),
    )])
}

#[tokio::test]
async fn right_passwords_let_in_and_nothing_else_does() {
    let hash = bcrypt::hash("secret", 4).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("ada:{hash}\n")).unwrap();
    let yaml = format!(
        "{{htpasswd: {{file: {}, inline: 'bob:plain'}}}}",
        file.path().display()
    );
    let server = services(&yaml).authenticator.unwrap();
    for right in ["ada:secret", "ada:secret", "bob:plain"] {
        assert_eq!(server.check(&basic(right)).await, Ok(()), "{right}");
    }
    for wrong in ["ada:plain", "bob:secret", "eve:secret", "bob", ":", "bob:"] {
        assert!(server.check(&basic(wrong)).await.is_err(), "{wrong}");
    }
    let other = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer x"))]);
    assert_eq!(
        server.check(&other).await,
        Err(Unauthenticated("the authorization is not Basic"))
    );
}

#[tokio::test]
async fn who_is_taken_out_of_the_file_is_no_longer_let_in() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "ada:one\n").unwrap();
    let yaml = format!("{{htpasswd: {{file: {}}}}}", file.path().display());
    let server = services(&yaml).authenticator.unwrap();
    assert_eq!(server.check(&basic("ada:one")).await, Ok(()));
    std::fs::write(file.path(), "ada:other\n").unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
    file.as_file().set_modified(later).unwrap();
    let refused = async {
        while server.check(&basic("ada:one")).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), refused)
        .await
        .expect("the file is read again");
    assert_eq!(server.check(&basic("ada:other")).await, Ok(()));
}

#[test]
fn we_send_what_is_configured() {
    let services = services("{client_auth: {username: tide, password: gate}}");
    let mut headers = HeaderMap::new();
    services.credentials.unwrap().apply(&mut headers, None).unwrap();
    assert_eq!(headers[AUTHORIZATION], basic("tide:gate")[AUTHORIZATION]);
    assert!(services.authenticator.is_none());
}
