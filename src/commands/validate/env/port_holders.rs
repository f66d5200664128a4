// SPDX-License-Identifier: Apache-2.0

//! The process that listens on a TCP port, as far as `/proc` shows it to this user.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// `nginx (pid 4711)`: the process that listens on an address.
pub(super) fn of_address(address: SocketAddr) -> Option<String> {
    process_with(sockets_on(address).first()?)
}

/// Whether this process listens on an address.
pub(super) fn is_own(address: SocketAddr) -> bool {
    let own = Path::new("/proc/self");
    sockets_on(address)
        .iter()
        .any(|socket| has_descriptor(own, socket))
}

/// The sockets that listen on an address, as the names of their descriptors.
fn sockets_on(address: SocketAddr) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts = tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    let lines = texts.iter().flat_map(|text| text.lines().skip(1));
    let inodes = lines.filter_map(|line| inode_of_listener(line, address));
    inodes.map(|inode| format!("socket:[{inode}]")).collect()
}

/// The inode of the socket of a line, if it listens on this address.
fn inode_of_listener(line: &str, address: SocketAddr) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    let (ip, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let listens = *state == LISTENING && port == address.port() && overlap(ip_of(ip)?, address.ip());
    inode.parse().ok().filter(|_| listens)
}

/// Whether one socket on each address can't have the same port.
pub(super) fn overlap(one: IpAddr, other: IpAddr) -> bool {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    // `[::]` takes the port of IPv4 too. `0.0.0.0` does not take that of IPv6.
    let covers = |wide: IpAddr, ip: IpAddr| wide.is_unspecified() && (wide.is_ipv6() || ip.is_ipv4());
    one == other || covers(one, other) || covers(other, one)
}

/// An address as the kernel writes it: words of 32 bits in the order of the machine, as hexadecimal numbers.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = hex.get(index * 8..index * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    if hex.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut octets = [0; 16];
    for (index, bytes) in octets.chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&word(index)?);
    }
    Some(Ipv6Addr::from(octets).into())
}

/// The oldest process that has a descriptor of this name: its children may have a copy. Other users' processes are not readable.
fn process_with(descriptor: &str) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbered = processes.filter_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        Some((pid, process.path()))
    });
    let holders = numbered.filter(|(_, process)| has_descriptor(process, descriptor));
    let (pid, process) = oldest(holders)?;
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    Some(format!("{name} (pid {pid})"))
}

/// The process that started first. Of those that started in one tick, the one with the lowest id.
fn oldest(processes: impl Iterator<Item = (u32, PathBuf)>) -> Option<(u32, PathBuf)> {
    processes.min_by_key(|(pid, process)| (start_time(process), *pid))
}

/// When a process started, in ticks since the boot. The last time there is, if it has ended.
fn start_time(process: &Path) -> u64 {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    start_field(&stat).unwrap_or(u64::MAX)
}

/// The field 22 of `/proc/PID/stat`. The name, field 2, is in parentheses and may have any character.
fn start_field(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

fn has_descriptor(process: &Path, descriptor: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    descriptors
        .flatten()
        .any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == descriptor))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_holder_of_a_port_is_this_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let holder = of_address(address).unwrap();
        let pid = format!("(pid {})", std::process::id());
        assert!(holder.ends_with(&pid), "{holder}");
        assert!(is_own(address));
        let elsewhere = SocketAddr::new([127, 0, 0, 2].into(), address.port());
        assert!(!is_own(elsewhere));
    }

    #[test]
    fn a_process_is_older_than_its_children() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let times = [std::process::id(), child.id()].map(|id| start_time(Path::new(&format!("/proc/{id}"))));
        child.kill().unwrap();
        child.wait().unwrap();
        // Both may have started in one tick.
        assert!(times[0] <= times[1] && times[1] < u64::MAX, "{times:?}");
        assert_eq!(
            start_field("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 23"),
            Some(4711)
        );
        assert_eq!((start_field("7 (a"), start_field("")), (None, None));
    }

    #[test]
    fn of_processes_that_started_in_one_tick_the_lowest_id_is_the_oldest() {
        // All have ended.
        let processes = [9, 7, 8].map(|pid| (pid, PathBuf::from("/nonexistent")));
        let found = oldest(processes.into_iter());
        assert_eq!(found.map(|(pid, _)| pid), Some(7));
    }

    #[test]
    fn lines_of_other_states_ports_and_addresses_do_not_match() {
        let line = |local: &str, state: &str| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 4711 1 0 100 0"
            )
        };
        let address = "127.0.0.1:8080".parse().unwrap();
        let local = if cfg!(target_endian = "little") {
            "0100007F:1F90"
        } else {
            "7F000001:1F90"
        };
        for (line, expected) in [
            (line(local, "0A"), Some(4711)),
            (line("00000000:1F90", "0A"), Some(4711)),
            (line(local, "01"), None),
            (line("00000000:1F91", "0A"), None),
            ("garbage".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(inode_of_listener(&line, address), expected, "{line}");
        }
    }

    #[test]
    fn an_address_of_all_interfaces_overlaps_with_each() {
        for (one, other, expected) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0", "127.0.0.1", true),
            ("127.0.0.1", "0.0.0.0", true),
            ("::", "127.0.0.1", true),
            ("0.0.0.0", "::1", false),
            ("::1", "::", true),
        ] {
            let [one, other] = [one, other].map(|ip| ip.parse().unwrap());
            assert_eq!(overlap(one, other), expected, "{one} {other}");
        }
    }
}
