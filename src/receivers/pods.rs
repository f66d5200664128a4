// SPDX-License-Identifier: Apache-2.0

//! The pod that owns a file in shared memory, by the path of the file.
//!
//! The kernel does not tell the gateway which pod wrote a file: process ids of another pod mean nothing here, and all pods may have
//! one user. But Kubernetes names directories by the uids of pods: those of the kubelet
//! (`/var/lib/kubelet/pods/UID/volumes/...`), and those that a pod mounts with `subPathExpr: $(POD_UID)`.

use std::path::Path;
use std::sync::Arc;

use tidegate_engine::{Attributes, Resource};

/// The attribute that has the uid of a pod. `k8sattributes` finds the pod by it.
const POD_UID: &str = "k8s.pod.uid";

/// The lengths of the groups of a uid.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// The uid of the pod that has a directory; `None`: no part of the path is a uid. Of several, the innermost counts.
fn pod_uid(directory: &Path) -> Option<&str> {
    let names = directory.iter().rev();
    names.filter_map(|name| name.to_str()).find(|name| is_uid(name))
}

/// The attributes of the resource of the files in a directory.
pub(super) fn attributes_of(directory: &Path) -> Attributes {
    let uid = pod_uid(directory).map(|uid| (POD_UID, uid));
    uid.into_iter().collect()
}

/// The resource of a file.
pub(super) fn resource_of(file: &Path) -> Arc<Resource> {
    Arc::new(Resource {
        attributes: file.parent().map(attributes_of).unwrap_or_default(),
        ..Resource::default()
    })
}

fn is_uid(name: &str) -> bool {
    let is_hex = |group: &str| {
        group
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    name.split('-').map(str::len).eq(GROUPS) && name.split('-').all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f4b8a52-3c1d-4e6f-9a7b-0123456789ab";

    #[test]
    fn the_innermost_directory_with_the_name_of_a_uid_counts() {
        let inner = "1f4b8a52-3c1d-4e6f-9a7b-0123456789ab";
        for (path, expected) in [
            (format!("/run/nixl/{UID}"), Some(UID)),
            (
                format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~empty-dir/nixl"),
                Some(UID),
            ),
            (format!("/{UID}/{inner}/cells"), Some(inner)),
            ("/run/nixl".to_owned(), None),
            ("/".to_owned(), None),
        ] {
            assert_eq!(pod_uid(Path::new(&path)), expected, "{path}");
        }
    }

    #[test]
    fn only_directories_are_named_by_uids() {
        let in_directory = resource_of(Path::new(&format!("/run/{UID}/agent")));
        assert_eq!(in_directory.attributes, [(POD_UID, UID)].into_iter().collect());
        let file = resource_of(Path::new(&format!("/run/{UID}")));
        assert_eq!(file.attributes, Attributes::default());
    }

    #[test]
    fn other_names_are_not_uids() {
        for name in [
            "",
            "-",
            "----",
            &UID[1..],
            &UID.to_uppercase(),
            &UID.replace('f', "g"),
        ] {
            assert!(!is_uid(name), "{name}");
        }
    }
}
