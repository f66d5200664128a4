// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::component::testing::{context, settings};

fn services(yaml: &str) -> Services {
    let built = (FACTORY.build)(
        &settings::<BasicAuthConfig>(yaml),
        context("extensions", "basicauth"),
    );
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
        assert_eq!(server.check(&basic(right), None).await, Ok(()), "{right}");
    }
    for wrong in ["ada:plain", "bob:secret", "eve:secret", "bob", ":", "bob:"] {
        assert!(server.check(&basic(wrong), None).await.is_err(), "{wrong}");
    }
    let other = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer x"))]);
    assert_eq!(
        server.check(&other, None).await,
        Err(Unauthenticated::Wrong("the authorization is not Basic"))
    );
}

#[tokio::test]
async fn a_user_removed_from_the_file_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "ada:one\n").unwrap();
    let yaml = format!("{{htpasswd: {{file: {}}}}}", file.path().display());
    let server = services(&yaml).authenticator.unwrap();
    assert_eq!(server.check(&basic("ada:one"), None).await, Ok(()));
    std::fs::write(file.path(), "ada:other\n").unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
    file.as_file().set_modified(later).unwrap();
    let refused = async {
        while server.check(&basic("ada:one"), None).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), refused)
        .await
        .expect("the file is read again");
    assert_eq!(server.check(&basic("ada:other"), None).await, Ok(()));
}

#[test]
fn we_send_what_is_configured() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "tide\n").unwrap();
    for user in [
        "username: tide".to_owned(),
        format!("username_file: {}", file.path().display()),
    ] {
        let services = services(&format!("{{client_auth: {{{user}, password: gate}}}}"));
        let mut headers = HeaderMap::new();
        services.credentials.unwrap().apply(&mut headers, None).unwrap();
        assert_eq!(
            headers[AUTHORIZATION],
            basic("tide:gate")[AUTHORIZATION],
            "{user}"
        );
        assert!(services.authenticator.is_none());
    }
}

#[test]
fn every_name_costs_the_same() {
    let rounds = |spent: Option<u32>, costliest: u32| -> u64 {
        let padded: u64 = padding(spent, costliest).map(|cost| 1 << cost).sum();
        padded + spent.map_or(0, |cost| 1 << cost)
    };
    let lines: String = [4, 9, 12]
        .map(|cost| {
            format!(
                "user{cost}:{}\n",
                bcrypt::hash_with_salt("x", 4, [0; 16])
                    .unwrap()
                    .format_for_version(bcrypt::Version::TwoB)
                    .replacen("$04$", &format!("${cost:02}$"), 1)
            )
        })
        .concat();
    let users = Users::parse(&format!(
        "{lines}plain:word\nsha:{{SHA}}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"
    ))
    .unwrap();
    assert_eq!(users.cost(), Some(12));
    for name in ["user4", "user9", "user12", "plain", "sha", "nobody"] {
        assert_eq!(
            rounds(users.get(name).and_then(Stored::cost), 12),
            1 << 12,
            "{name}"
        );
    }
    assert_eq!(Users::parse("plain:word").unwrap().cost(), None);
}

#[tokio::test]
async fn an_address_that_guesses_is_delayed_and_known_users_continue() {
    let yaml = "{htpasswd: {inline: 'ada:right', max_failures_per_minute: 3}}";
    let server = services(yaml).authenticator.unwrap();
    let ask = async |user: &str, last: u8| {
        let from = IpAddr::from([192, 0, 2, last]);
        server.check(&basic(user), Some(from)).await
    };
    assert_eq!(ask("ada:right", 1).await, Ok(()));
    let wrong = Err(Unauthenticated::Wrong("wrong name or password"));
    for guess in ["ada:a", "ada:b", "eve:c"] {
        assert_eq!(ask(guess, 1).await, wrong);
    }
    assert_eq!(ask("ada:d", 1).await, Err(TOO_OFTEN));
    assert_eq!(ask("ada:right", 1).await, Ok(()), "known already");
    assert_eq!(ask("ada:e", 2).await, wrong, "another address");
    let of_this_machine = server.check(&basic("ada:f"), None).await;
    assert_eq!(of_this_machine, wrong);
}

#[test]
fn of_many_right_headers_the_one_that_was_not_used_for_longest_goes() {
    let mark = |number: usize| digest(&number.to_le_bytes());
    let mut right = Right::default();
    (0..MAX_KNOWN).for_each(|number| right.add(mark(number)));
    assert!(right.has(&mark(0)), "all are known");
    right.add(mark(MAX_KNOWN));
    assert!(!right.has(&mark(1)), "it is the oldest now");
    let known = (0..=MAX_KNOWN).filter(|number| right.has(&mark(*number)));
    assert_eq!(known.count(), MAX_KNOWN);
    // A header in constant use stays, however many others come.
    for number in 0..4 * MAX_KNOWN {
        assert!(right.has(&mark(0)));
        right.add(mark(10_000 + number));
        assert_eq!(right.used.len(), MAX_KNOWN);
    }
}

/// A server whose checks take about a second, without optimisation.
fn costly() -> (Arc<BasicServer>, tempfile::NamedTempFile) {
    let hash = bcrypt::hash_with_salt("x", 4, [0; 16]).unwrap();
    let line = format!("ada:{}\n", hash.format_for_version(bcrypt::Version::TwoB));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), line.replace("$04$", "$10$")).unwrap();
    let server = BasicServer::new(HtpasswdConfig {
        file: Some(file.path().to_owned()),
        ..HtpasswdConfig::default()
    });
    (Arc::new(server), file)
}

#[tokio::test]
async fn a_check_keeps_its_turn_when_its_client_hangs_up() {
    let (server, _file) = costly();
    let header = basic("ada:wrong");
    let both = async { tokio::join!(server.check(&header, None), server.check(&header, None)) };
    // They begin, and their client hangs up.
    let begun = tokio::time::timeout(Duration::from_millis(1), both).await;
    assert!(begun.is_err());
    assert_eq!(server.checks.available_permits(), 0, "both are still at work");
    let both = server.checks.acquire_many(u32::try_from(CHECKS).unwrap()).await;
    assert!(both.is_ok(), "they end");
}

#[tokio::test]
async fn so_many_checks_wait_and_further_ones_are_refused_for_now() {
    let (server, _file) = costly();
    let taken = server.checks.clone().acquire_many_owned(2).await.unwrap();
    let header = basic("ada:wrong");
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..MAX_WAITING {
        let (server, header) = (server.clone(), header.clone());
        waiting.spawn(async move { server.check(&header, None).await });
    }
    while server.waiting.load(Relaxed) < MAX_WAITING {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.check(&header, None).await, Err(CROWDED));
    waiting.shutdown().await;
    assert_eq!(server.waiting.load(Relaxed), 0);
    drop(taken);
}
