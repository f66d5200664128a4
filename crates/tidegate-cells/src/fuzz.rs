// SPDX-License-Identifier: Apache-2.0

//! Files for fuzzing: their checksums are right, so that the reader goes on.

use crate::layout::{HEADER_SIZE, Header, Identity, RECORD_HEAD, Role, SEGMENT_SIZE, SegmentKind, header};

/// Name and bytes of a file. The first bytes choose its role, and the changing words of the header. The rest is
/// records, each a length, a kind and a payload, which get their checksums. The same bytes are the values.
pub fn file(data: &[u8]) -> (String, Vec<u8>) {
    let (how, rest) = data.split_at_checked(12).unwrap_or((&[], data));
    let choice = how.first().copied().unwrap_or(0);
    let role = if choice & 1 == 0 {
        Role::Process
    } else {
        Role::Retained
    };
    let identity = Identity {
        pid: 1,
        start: 1,
        epoch: 1,
    };
    let fixed = Header {
        role,
        identity,
        boot: 1,
        created_ns: 1,
    };
    let records = records(rest);
    let mut bytes = fixed.bytes().to_vec();
    let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    put(header::SEGMENTS, 2);
    put(header::TABLE, SegmentKind::Values.entry(SEGMENT_SIZE));
    put(header::TABLE + 8, SegmentKind::Descriptors.entry(SEGMENT_SIZE));
    put(header::DESCRIPTORS, records.len() as u64);
    if let (2.., Some(over)) = (choice, how.get(2..10).and_then(|word| word.try_into().ok())) {
        put(
            header::SEGMENTS + usize::from(how[1] % 64) * 8,
            u64::from_le_bytes(over),
        );
    }
    let segment = SEGMENT_SIZE as usize;
    let values = rest
        .iter()
        .copied()
        .cycle()
        .take(if rest.is_empty() { 0 } else { segment });
    bytes.extend(values);
    bytes.resize(HEADER_SIZE + segment, 0);
    bytes.extend(records);
    bytes.resize(HEADER_SIZE + 2 * segment, 0);
    let name = match role {
        Role::Process => format!("{identity}.cells"),
        Role::Retained => "retained.cells".to_owned(),
    };
    (name, bytes)
}

fn records(mut rest: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    while let [length, kind, after @ ..] = rest {
        let (payload, after) = after.split_at(usize::from(*length).min(after.len()));
        if records.len() + RECORD_HEAD + payload.len() > SEGMENT_SIZE as usize {
            break;
        }
        let checked: Vec<u8> = [&[*kind], payload].concat();
        records.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        records.extend_from_slice(&crc32fast::hash(&checked).to_le_bytes());
        records.extend_from_slice(&checked);
        rest = after;
    }
    records
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use crate::{Directory, Limits};

    /// Bytes that are records more often than by chance: families, series and the like of small numbers.
    fn data() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![3 => 0..8_u8, 1 => any::<u8>()];
        let family = (1..8_u8, prop::collection::vec(0..4_u8, 0..3)).prop_map(|(kind, rest)| {
            let family = [&[1, 0, b'f', 0, 0, 0, 0, kind][..], &rest, &[0, 0]].concat();
            [&[family.len() as u8, 2], family.as_slice()].concat()
        });
        let series = (0..3_u8, any::<u8>(), 1..16_u8, 0..3_u8).prop_map(|(family, low, high, role)| {
            let slot = [low, high, 0, 0, 0, 0, 0, 0];
            let identity: &[u8] = if role == 2 { &[1; 20] } else { &[] };
            let series = [&[family, 0, 0, 0], slot.as_slice(), &[role], identity, &[0, 0]].concat();
            [&[series.len() as u8, 3], series.as_slice()].concat()
        });
        let junk = prop::collection::vec(byte, 0..40);
        let part = prop_oneof![4 => family, 8 => series, 1 => junk];
        let parts = prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat());
        let head = prop::array::uniform12(any::<u8>());
        (any::<bool>(), 0..2_u8, head, parts).prop_map(|(plain, role, mut head, parts)| {
            if plain {
                head[0] = role;
            }
            [head.as_slice(), &parts].concat()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_is_read_of_any_file_can_be_folded_and_read_again(data in data()) {
            let directory = tempfile::tempdir().unwrap();
            let (name, bytes) = super::file(&data);
            std::fs::write(directory.path().join(name), bytes).unwrap();
            let mut reader = Directory::open(directory.path(), Limits::default()).unwrap();
            let before = reader.scan();
            if reader.fold(Duration::ZERO).is_ok_and(|folded| !folded.processes.is_empty()) {
                let after = reader.scan();
                prop_assert_eq!(&after.problems, &[]);
                let series = |scan: &crate::Scan| -> usize {
                    scan.merged.families.iter().map(|family| family.series.len()).sum()
                };
                prop_assert_eq!(series(&before), series(&after));
            }
        }
    }
}
