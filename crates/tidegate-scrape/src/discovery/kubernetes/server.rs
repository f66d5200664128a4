// SPDX-License-Identifier: Apache-2.0

//! The API server of a discovery, by its options.

use tidegate_config::Secret;
use tidegate_kubernetes::{AccessError, ApiCredentials, ApiServer, SecretText, in_cluster, kubeconfig};

use crate::config::http::HttpOptions;
use crate::config::kubernetes::KubernetesSdConfig;

/// The server, and the way to it.
///
/// # Errors
/// This is not a pod, or the kubeconfig is unusable.
pub(super) fn of(config: &KubernetesSdConfig) -> Result<ApiServer, AccessError> {
    match (&config.kubeconfig_file, &config.api_server) {
        (Some(path), _) => kubeconfig(path, None),
        // The options have been checked: it is a URL.
        (None, Some(url)) => Ok(with_options(url.parse().unwrap_or_default(), &config.http())),
        (None, None) => in_cluster(),
    }
}

fn with_options(url: http::Uri, options: &HttpOptions) -> ApiServer {
    ApiServer {
        url,
        tls: options.tls.client(),
        credentials: credentials(options),
        headers: options.headers(SecretText::Fixed, |path| SecretText::File(path.to_owned())),
        follow_redirects: options.follow_redirects,
        enable_http2: options.enable_http2,
    }
}

fn credentials(options: &HttpOptions) -> Option<ApiCredentials> {
    let text = |text: Option<&Secret>, file: Option<&std::path::PathBuf>| {
        let file = file.map(|path| SecretText::File(path.clone()));
        let fixed = text.cloned().unwrap_or_default();
        file.unwrap_or(SecretText::Fixed(fixed))
    };
    if let Some(basic) = &options.basic_auth {
        let user = Secret::new(basic.username.as_str());
        return Some(ApiCredentials::Basic(
            text(Some(&user), basic.username_file.as_ref()),
            text(basic.password.as_ref(), basic.password_file.as_ref()),
        ));
    }
    let authorization = options.authorization.as_ref()?;
    let word = match authorization.r#type.trim() {
        "" => "Bearer",
        word => word,
    };
    let secret = text(
        authorization.credentials.as_ref(),
        authorization.credentials_file.as_ref(),
    );
    Some(ApiCredentials::Word(word.to_owned(), secret))
}
