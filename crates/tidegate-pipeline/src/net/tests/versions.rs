// SPDX-License-Identifier: Apache-2.0

//! The versions of TLS that both ends allow.

use rustls::ProtocolVersion;

use super::*;
use crate::net::tls::TlsVersion::{self, V12, V13};

async fn server(issuer: &rcgen::Issuer<'static, rcgen::KeyPair>, max_version: TlsVersion) -> Server {
    let (cert, key) = leaf(issuer, "gateway.test");
    let tls = TlsServerConfig {
        cert_pem: secret(cert),
        key_pem: secret(key),
        max_version,
        ..TlsServerConfig::default()
    };
    start_tls(&tls).await
}

#[tokio::test]
async fn both_ends_speak_the_newest_version_that_both_allow() {
    let (ca, issuer) = authority();
    for (newest_of_server, oldest, newest, expected) in [
        (V13, V12, V13, Some(ProtocolVersion::TLSv1_3)),
        (V12, V12, V13, Some(ProtocolVersion::TLSv1_2)),
        (V13, V12, V12, Some(ProtocolVersion::TLSv1_2)),
        (V12, V13, V13, None),
    ] {
        let server = server(&issuer, newest_of_server).await;
        let client = TlsClientConfig {
            ca_pem: secret(ca.pem()),
            server_name_override: Some("gateway.test".to_owned()),
            min_version: oldest,
            max_version: newest,
            ..TlsClientConfig::default()
        };
        let stream = handshake(&server, &client).await.ok();
        let spoken = stream.and_then(|stream| stream.get_ref().1.protocol_version());
        assert_eq!(spoken, expected, "{newest_of_server}, {oldest} to {newest}");
    }
}
