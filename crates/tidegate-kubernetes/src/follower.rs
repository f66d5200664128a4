// SPDX-License-Identifier: Apache-2.0

//! One user of a watch: the way to the API server, the objects of now, and their changes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_runtime::Account;
use tokio::sync::watch;

use crate::access::{AccessError, in_cluster, kubeconfig};
use crate::client::ApiClient;
use crate::cluster::{Cluster, SharedWatch};
use crate::kind::Scope;
use crate::store::{StoredObject, WatchStatus};

/// The time after which the files of a pod are read again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Follows the objects of a scope.
pub struct ObjectFollower {
    watch: Arc<SharedWatch>,
    status: watch::Receiver<WatchStatus>,
    trouble: watch::Receiver<Option<Arc<str>>>,
}

impl ObjectFollower {
    /// Follows a scope at the server of a kubeconfig file. `None`: at the server of this pod. The watch runs as a task of
    /// the current runtime.
    ///
    /// # Errors
    /// The server is not known, or a file of it is unusable.
    pub fn new(kubeconfig_file: Option<&Path>, scope: Scope, account: &Arc<Account>) -> Result<Self, String> {
        let client = client_of(kubeconfig_file)?;
        let watch = Cluster::shared(client, account).watch(scope);
        Ok(Self {
            status: watch.status(),
            trouble: watch.trouble(),
            watch,
        })
    }

    /// The same, again until it succeeds: the files of a pod may come after the start. `failed` gets each error.
    pub async fn until_open(
        kubeconfig_file: Option<&Path>,
        scope: &Scope,
        account: &Arc<Account>,
        mut failed: impl FnMut(&str),
    ) -> Self {
        loop {
            match Self::new(kubeconfig_file, scope.clone(), account) {
                Ok(follower) => return follower,
                Err(why) => failed(&why),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// All objects of now, in the order of namespaces and names. `None`: their first list is not complete.
    pub fn objects(&mut self) -> Option<Vec<Arc<StoredObject>>> {
        // A change after this line is a change to come.
        let is_synced = self.status.borrow_and_update().is_synced;
        is_synced.then(|| self.watch.snapshot())
    }

    /// Why the objects may be old. `None`: the server answers.
    pub fn trouble(&mut self) -> Option<Arc<str>> {
        self.trouble.borrow_and_update().clone()
    }

    /// Waits until the objects or the trouble differ from those that were read.
    pub async fn changed(&mut self) {
        // The senders live as long as the watch.
        tokio::select! {
            _ = self.status.changed() => {}
            _ = self.trouble.changed() => {}
        }
    }
}

/// A client of the server of a kubeconfig file. `None`: of the server of this pod.
///
/// # Errors
/// The server is not known, or a file of it is unusable.
pub(crate) fn client_of(kubeconfig_file: Option<&Path>) -> Result<ApiClient, String> {
    let server = match kubeconfig_file {
        Some(path) => kubeconfig(path, None),
        None => in_cluster(),
    };
    let server = server.map_err(|error| match error {
        AccessError::NoPod => "this is not a pod: set `kubeconfig_file`".to_owned(),
        other => other.to_string(),
    })?;
    ApiClient::new(server).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::ObjectKind;
    use crate::testing::{FakeApiServer, kubeconfig_of};

    fn file(directory: &Path, url: &str) -> std::path::PathBuf {
        let path = directory.join("config");
        std::fs::write(&path, kubeconfig_of(url)).unwrap();
        path
    }

    fn pod(name: &str) -> serde_json::Value {
        json!({"metadata": {"name": name, "namespace": "x"}})
    }

    async fn until(follower: &mut ObjectFollower, holds: impl Fn(Option<usize>, Option<&str>) -> bool) {
        let holds = async {
            loop {
                let objects = follower.objects().map(|objects| objects.len());
                if holds(objects, follower.trouble().as_deref()) {
                    return;
                }
                follower.changed().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), holds)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn objects_stay_while_the_server_is_away_and_the_reason_is_known() {
        let mut server = FakeApiServer::start().await;
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path(), &server.url());
        let account = Arc::<Account>::default();
        let open = || ObjectFollower::new(Some(&path), Scope::all(ObjectKind::Pod), &account).unwrap();
        let mut follower = open();
        until(&mut follower, |objects, trouble| {
            objects == Some(0) && trouble.is_none()
        })
        .await;
        server.apply("pods", &pod("a"));
        until(&mut follower, |objects, _| objects == Some(1)).await;
        server.stop();
        until(&mut follower, |objects, trouble| {
            objects == Some(1) && trouble.is_some()
        })
        .await;
        server.apply_quietly("pods", &pod("b"));
        server.forget_events();
        server.restart().await;
        until(&mut follower, |objects, trouble| {
            objects == Some(2) && trouble.is_none()
        })
        .await;
        // A second user of the watch begins with what is known.
        assert_eq!(open().objects().map(|objects| objects.len()), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_may_come_after_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let mut errors = Vec::new();
        ObjectFollower::until_open(
            Some(&path),
            &Scope::all(ObjectKind::Pod),
            &Arc::default(),
            |why| {
                errors.push(why.to_owned());
                if errors.len() == 2 {
                    file(directory.path(), "http://127.0.0.1:1");
                }
            },
        )
        .await;
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].contains("config: "), "{errors:?}");
    }
}
