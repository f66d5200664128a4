// SPDX-License-Identifier: Apache-2.0

//! The identity of this process: a name that no other process has.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

/// The attribute that tells processes of one service apart.
const INSTANCE: &str = "service.instance.id";

/// The process and its name. A child of a fork finds its parent's.
static KNOWN: Mutex<Option<(u32, String)>> = Mutex::new(None);

/// How often a thread asks for the lock of [`KNOWN`], and the pause between.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// The resource of this process: the environment (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`), and the given
/// attributes. Without a `service.instance.id` of either, it makes a random one: two processes must never report as one
/// series.
pub(crate) fn resource(own: &[(String, String)]) -> Resource {
    let own = own
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let resource = Resource::builder().with_attributes(own).build();
    let is_named = resource.iter().any(|(key, _)| key.as_str() == INSTANCE);
    if is_named {
        resource
    } else {
        let known = resource.iter();
        let known = known.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let named = known.chain([KeyValue::new(INSTANCE, instance_id())]);
        Resource::builder_empty().with_attributes(named).build()
    }
}

/// A random UUID, the same for the life of the process; a child of a fork has one of its own.
fn instance_id() -> String {
    for _ in 0..LOCK_TRIES {
        match KNOWN.try_lock() {
            Ok(mut known) => return name_in(&mut known, std::process::id()),
            Err(TryLockError::Poisoned(known)) => {
                return name_in(&mut known.into_inner(), std::process::id());
            }
            // Another thread holds it for microseconds. A fork may have left it locked forever.
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
        }
    }
    random_uuid()
}

/// The known name, if it is that of this process. Otherwise a new one, which is known then.
fn name_in(known: &mut Option<(u32, String)>, process: u32) -> String {
    match known {
        Some((of, id)) if *of == process => id.clone(),
        _ => known.insert((process, random_uuid())).1.clone(),
    }
}

/// Version 4 of RFC 9562.
fn random_uuid() -> String {
    let mut bytes = random();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Text refuses nothing.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// From the system, since a child of a fork has its parent's generators in the state they were in. Where the system has
/// none: process and time.
fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if read.is_err() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mixed = (now.as_nanos() << 32) | u128::from(std::process::id());
        bytes = mixed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
            .to_le_bytes();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance_of(resource: &Resource) -> String {
        let found = resource.iter().find(|(key, _)| key.as_str() == INSTANCE);
        found.map(|(_, value)| value.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_process_has_one_random_name_unless_it_is_given_one() {
        let (first, second) = (resource(&[]), resource(&[]));
        let id = instance_of(&first);
        assert_eq!(id, instance_of(&second));
        assert_eq!((id.len(), id.as_bytes()[14]), (36, b'4'), "{id}");
        assert_ne!(random_uuid(), random_uuid());
        let named = resource(&[(INSTANCE.to_owned(), "mine".to_owned())]);
        assert_eq!(instance_of(&named), "mine");
    }

    #[test]
    fn a_child_of_a_fork_has_a_name_of_its_own() {
        let mut known = None;
        let parent = name_in(&mut known, 1);
        assert_eq!(name_in(&mut known, 1), parent);
        let child = name_in(&mut known, 2);
        assert_ne!(child, parent);
        assert_eq!(name_in(&mut known, 2), child);
    }

    #[test]
    fn threads_that_ask_at_once_get_one_name() {
        let asking: Vec<_> = (0..8).map(|_| std::thread::spawn(instance_id)).collect();
        for thread in asking {
            assert_eq!(thread.join().unwrap(), instance_id());
        }
    }
}
