// SPDX-License-Identifier: Apache-2.0

//! Where the API server is: the account of a pod, or a kubeconfig file.

use std::path::{Path, PathBuf};

use base64::Engine;
use http::Uri;
use tidegate_config::{Node, Problems, Secret, parse_text};
use tidegate_runtime::files;

use crate::client::{ApiCredentials, ApiServer, SecretText};

/// The directory with the token, the authorities and the namespace of a pod.
const POD_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Why the API server is not known.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The process is in no pod.
    #[error(
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so this is not a pod: set `api_server` or `kubeconfig_file`"
    )]
    NoPod,
    /// A file can't be read.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    File(PathBuf, std::io::Error),
    /// A kubeconfig file is not as expected.
    #[error("{path}: {message}", path = .0.display(), message = .1)]
    Kubeconfig(PathBuf, String),
}

/// The API server of the cluster that runs this pod.
///
/// # Errors
/// This is not a pod.
pub fn in_cluster() -> Result<ApiServer, AccessError> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let host = variable("KUBERNETES_SERVICE_HOST").ok_or(AccessError::NoPod)?;
    let port = variable("KUBERNETES_SERVICE_PORT").ok_or(AccessError::NoPod)?;
    pod_server(&host, &port, Path::new(POD_DIRECTORY))
}

/// The server of a pod with the files of this directory.
pub(crate) fn pod_server(host: &str, port: &str, directory: &Path) -> Result<ApiServer, AccessError> {
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let url = format!("https://{host}:{port}")
        .parse()
        .map_err(|_| AccessError::NoPod)?;
    let mut server = ApiServer::at(url);
    server.tls.ca_file = Some(directory.join("ca.crt"));
    server.credentials = Some(bearer(SecretText::File(directory.join("token"))));
    Ok(server)
}

/// The namespace of this pod.
///
/// # Errors
/// This is not a pod.
pub fn own_namespace() -> Result<String, AccessError> {
    let path = Path::new(POD_DIRECTORY).join("namespace");
    let text = files::read_text(&path).map_err(|error| AccessError::File(path, error))?;
    Ok(text.trim().to_owned())
}

fn bearer(token: SecretText) -> ApiCredentials {
    ApiCredentials::Word("Bearer".to_owned(), token)
}

/// The API server of a context of a kubeconfig file. `None`: the current context.
///
/// # Errors
/// The file can't be read, has no such context, or needs a program that signs in.
pub fn kubeconfig(path: &Path, context: Option<&str>) -> Result<ApiServer, AccessError> {
    let text = files::read_text(path).map_err(|error| AccessError::File(path.to_owned(), error))?;
    read_kubeconfig(path, &text, context).map_err(|message| AccessError::Kubeconfig(path.to_owned(), message))
}

fn read_kubeconfig(path: &Path, text: &str, context: Option<&str>) -> Result<ApiServer, String> {
    let mut problems = Problems::default();
    let root = parse_text(&path.display().to_string(), text, &mut problems);
    let root = root.ok_or_else(|| format!("not YAML: {problems}"))?;
    let context = match context {
        Some(name) => name,
        None => text_of(&root, "current-context").ok_or("`current-context` is not set")?,
    };
    let context = named(&root, "contexts", "context", context)?;
    let cluster = text_of(context, "cluster").ok_or("the context has no `cluster`")?;
    let mut server = cluster_server(named(&root, "clusters", "cluster", cluster)?, path)?;
    if let Some(user) = text_of(context, "user") {
        add_user(&mut server, named(&root, "users", "user", user)?, path)?;
    }
    Ok(server)
}

fn text_of<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.get(key)?.as_text().filter(|text| !text.is_empty())
}

/// The entry of a list with this name.
fn named<'a>(root: &'a Node, list: &str, entry: &str, name: &str) -> Result<&'a Node, String> {
    let entries = root.get(list).and_then(Node::as_list).unwrap_or_default();
    let found = entries.iter().find(|node| text_of(node, "name") == Some(name));
    let found = found.and_then(|node| node.get(entry));
    found.ok_or_else(|| format!("`{list}` has no {name:?}"))
}

fn cluster_server(cluster: &Node, path: &Path) -> Result<ApiServer, String> {
    let url = text_of(cluster, "server").unwrap_or_default();
    let url: Uri = url.parse().map_err(|_| format!("{url:?} is not a URL"))?;
    if url.scheme().is_none() || url.authority().is_none() {
        return Err(format!("`server`: {url} is not a URL that begins with https://"));
    }
    if cluster.get("proxy-url").is_some() {
        return Err("`proxy-url` is not supported".to_owned());
    }
    let mut server = ApiServer::at(url);
    server.tls.ca_file = file_of(cluster, "certificate-authority", path);
    server.tls.ca_pem = data_of(cluster, "certificate-authority-data")?;
    server.tls.server_name_override = text_of(cluster, "tls-server-name").map(str::to_owned);
    server.tls.insecure_skip_verify = text_of(cluster, "insecure-skip-tls-verify") == Some("true");
    Ok(server)
}

fn add_user(server: &mut ApiServer, user: &Node, path: &Path) -> Result<(), String> {
    for key in ["exec", "auth-provider"] {
        if user.get(key).is_some() {
            return Err(format!(
                "the user signs in by `{key}`, which is not supported: use a token, `tokenFile` or a client certificate"
            ));
        }
    }
    server.tls.cert_file = file_of(user, "client-certificate", path);
    server.tls.cert_pem = data_of(user, "client-certificate-data")?;
    server.tls.key_file = file_of(user, "client-key", path);
    server.tls.key_pem = data_of(user, "client-key-data")?;
    let fixed = |key| text_of(user, key).map(|text| SecretText::Fixed(Secret::new(text)));
    let file = file_of(user, "tokenFile", path).map(SecretText::File);
    server.credentials = match (file.or_else(|| fixed("token")), fixed("username")) {
        (Some(token), _) => Some(bearer(token)),
        (None, Some(name)) => {
            let password = fixed("password").unwrap_or_else(|| SecretText::Fixed(Secret::default()));
            Some(ApiCredentials::Basic(name, password))
        }
        (None, None) => None,
    };
    Ok(())
}

/// The path of a file, relative to the kubeconfig file.
fn file_of(node: &Node, key: &str, kubeconfig: &Path) -> Option<PathBuf> {
    let directory = kubeconfig.parent().unwrap_or(Path::new(""));
    text_of(node, key).map(|file| directory.join(file))
}

/// A PEM text in base64.
fn data_of(node: &Node, key: &str) -> Result<Option<Secret>, String> {
    let Some(text) = text_of(node, key) else {
        return Ok(None);
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok();
    let pem = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let pem = pem.ok_or_else(|| format!("`{key}` is not a PEM text in base64"))?;
    Ok(Some(Secret::new(pem)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
apiVersion: v1
kind: Config
current-context: dev
contexts:
- {name: prod, context: {cluster: other, user: none}}
- {name: dev, context: {cluster: kind, user: admin, namespace: x}}
clusters:
- {name: kind, cluster: {server: 'https://[::1]:6443/k8s', certificate-authority-data: UEVN, tls-server-name: kind}}
users:
- {name: admin, user: {token: secret, tokenFile: run/token, client-certificate: /a/c.pem, client-key-data: UEVN}}
preferences: {}
";

    fn read(text: &str) -> Result<ApiServer, String> {
        read_kubeconfig(Path::new("/home/config"), text, None)
    }

    #[test]
    fn the_current_context_names_the_server_and_the_user() {
        let server = read(FILE).unwrap();
        assert_eq!(server.url, "https://[::1]:6443/k8s");
        let pem = Some(Secret::new("PEM"));
        assert_eq!((&server.tls.ca_pem, &server.tls.key_pem), (&pem, &pem));
        assert_eq!(server.tls.server_name_override.as_deref(), Some("kind"));
        assert_eq!(server.tls.cert_file.as_deref(), Some(Path::new("/a/c.pem")));
        let token = SecretText::File("/home/run/token".into());
        assert_eq!(server.credentials, Some(bearer(token)));
        assert!(!server.tls.insecure_skip_verify);
    }

    #[test]
    fn a_context_may_be_named() {
        let named = |name| read_kubeconfig(Path::new("/home/config"), FILE, Some(name));
        assert_eq!(named("dev").unwrap().url, "https://[::1]:6443/k8s");
        let error = named("prod").unwrap_err();
        assert!(error.contains("`clusters` has no \"other\""), "{error}");
    }

    #[test]
    fn a_kubeconfig_that_is_not_usable_is_refused_with_the_reason() {
        let table = [
            (
                "current-context: dev",
                "current-context: gone",
                "`contexts` has no \"gone\"",
            ),
            ("token: secret", "exec: {command: aws}", "signs in by `exec`"),
            ("'https://[::1]:6443/k8s'", "nowhere", "is not a URL"),
            ("data: UEVN, tls", "data: '!', tls", "not a PEM text in base64"),
            (
                "server-name: kind",
                "server-name: kind, proxy-url: x",
                "`proxy-url` is not supported",
            ),
            ("preferences: {}", "preferences: {", "not YAML"),
        ];
        for (text, wrong, expected) in table {
            let error = read(&FILE.replace(text, wrong)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_pod_has_its_server_by_environment_and_files() {
        let server = pod_server("fd00::1", "443", Path::new("/run/pod")).unwrap();
        assert_eq!(server.url, "https://[fd00::1]:443");
        assert_eq!(server.tls.ca_file.as_deref(), Some(Path::new("/run/pod/ca.crt")));
        let token = SecretText::File("/run/pod/token".into());
        assert_eq!(server.credentials, Some(bearer(token)));
    }
}
